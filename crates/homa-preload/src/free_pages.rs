//! The set of free pages of a region: a bit for each page.

/// The set of the [module](self).
pub(crate) struct FreePages {
    words: Vec<u64>,
    count: usize,
    /// Words before this one have no free page.
    first: usize,
}

impl FreePages {
    /// Creates a set of this number of pages, all of them free.
    pub(crate) fn new(count: u32) -> FreePages {
        let mut words = vec![u64::MAX; count.div_ceil(64) as usize];
        if let Some(last) = words.last_mut().filter(|_| !count.is_multiple_of(64)) {
            *last = (1 << (count % 64)) - 1;
        }
        FreePages { words, count: count as usize, first: 0 }
    }

    /// Returns the number of free pages.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    fn is_free(&self, page: usize) -> bool {
        self.words.get(page / 64).is_some_and(|word| word >> (page % 64) & 1 == 1)
    }

    /// Takes the first run of `length` contiguous free pages, and returns its first page. With few messages
    /// at a time, the first pages are the most recently used ones: their memory is already mapped, and is in
    /// the caches.
    pub(crate) fn take_run(&mut self, length: u32) -> Option<u32> {
        let length = length as usize;
        if length == 0 || length > self.count {
            return None;
        }
        while self.words.get(self.first) == Some(&0) {
            self.first += 1;
        }
        let (mut start, mut page) = (self.first * 64, self.first * 64);
        while page < self.words.len() * 64 {
            if page % 64 == 0 && self.words[page / 64] == 0 {
                page += 64;
                start = page;
                continue;
            }
            page += 1;
            if !self.is_free(page - 1) {
                start = page;
            } else if page - start == length {
                (start..page).for_each(|page| self.words[page / 64] &= !(1 << (page % 64)));
                self.count -= length;
                return Some(start as u32);
            }
        }
        None
    }

    /// Frees a page, which must be in use.
    pub(crate) fn put(&mut self, page: u32) {
        let page = page as usize;
        debug_assert!(!self.is_free(page));
        self.words[page / 64] |= 1 << (page % 64);
        self.count += 1;
        self.first = self.first.min(page / 64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_run_that_is_long_enough_is_taken() {
        let mut free = FreePages::new(130);
        assert_eq!((free.take_run(0), free.take_run(131)), (None, None));
        assert_eq!((free.take_run(3), free.take_run(60), free.take_run(64)), (Some(0), Some(3), Some(63)));
        free.put(1);
        assert_eq!((free.take_run(2), free.count()), (Some(127), 2));
        free.put(0);
        assert_eq!(free.take_run(2), Some(0));
        free.put(64);
        free.put(63);
        assert_eq!(
            (free.take_run(3), free.take_run(2), free.take_run(1), free.count()),
            (None, Some(63), Some(129), 0)
        );
    }

    #[test]
    fn every_page_is_given_once() {
        let mut free = FreePages::new(100);
        let mut taken: Vec<u32> = std::iter::from_fn(|| free.take_run(1)).collect();
        assert_eq!(taken, (0..100).collect::<Vec<_>>());
        taken.drain(..).rev().for_each(|page| free.put(page));
        assert_eq!((free.count(), free.take_run(100)), (100, Some(0)));
    }
}
