//! The RPCs of each port, so that closing a port examines no RPCs of other ports (PROTOCOL.md ABORT-8).

use crate::lists::{Links, List};

/// Number of ports whose lists are allocated together, as a page of 2 KiB. Hosts use a few adjacent ports.
const PAGE: usize = 1 << 8;
const PAGES: usize = (1 << 16) / PAGE;

/// RPC slots by their port, oldest first.
#[derive(Debug)]
pub(crate) struct PortRpcs {
    links: Links,
    /// A page is allocated when one of its ports gets its first RPC.
    pages: Box<[Option<Box<[List; PAGE]>>]>,
}

/// Returns the list of `port`, allocated if needed.
fn list_of(pages: &mut [Option<Box<[List; PAGE]>>], port: u16) -> &mut List {
    let page = pages[usize::from(port) / PAGE].get_or_insert_with(|| Box::new([List::EMPTY; PAGE]));
    &mut page[usize::from(port) % PAGE]
}

impl PortRpcs {
    pub(crate) fn with_capacity(rpcs: usize) -> PortRpcs {
        PortRpcs { links: Links::with_capacity(rpcs), pages: vec![None; PAGES].into_boxed_slice() }
    }

    /// Makes `slot` a valid index.
    pub(crate) fn resize(&mut self, slots: usize) {
        self.links.resize(slots);
    }

    pub(crate) fn add(&mut self, port: u16, slot: u32) {
        self.links.push_back(list_of(&mut self.pages, port), port.into(), slot);
    }

    /// Removes `slot`, which must have been added for `port`.
    pub(crate) fn remove(&mut self, port: u16, slot: u32) {
        self.links.remove(list_of(&mut self.pages, port), slot);
    }

    pub(crate) fn oldest(&self, port: u16) -> Option<u32> {
        self.list(port).head()
    }

    /// Returns the RPCs of `port`, oldest first.
    pub(crate) fn iter(&self, port: u16) -> impl Iterator<Item = u32> + '_ {
        self.links.iter(self.list(port))
    }

    fn list(&self, port: u16) -> &List {
        self.pages[usize::from(port) / PAGE]
            .as_ref()
            .map_or(&List::EMPTY, |page| &page[usize::from(port) % PAGE])
    }

    /// Panics unless the lists are well linked; returns the number of RPCs in them.
    pub(crate) fn check(&self) -> usize {
        let pages = self.pages.iter().enumerate().filter_map(|(page, lists)| Some((page, lists.as_ref()?)));
        let lists = pages.flat_map(|(page, lists)| {
            lists.iter().enumerate().map(move |(at, list)| (page * PAGE + at, list))
        });
        lists.map(|(port, list)| self.links.check(list, port as u32)).sum()
    }

    /// Returns whether `slot` is in the list of `port`.
    pub(crate) fn contains(&self, port: u16, slot: u32) -> bool {
        self.links.list_of(slot) == Some(port.into())
    }
}
