//! Doubly linked lists whose links are stored in one array indexed by slot: insertion and removal are O(1)
//! and allocate nothing.

/// No node.
pub(crate) const NIL: u32 = u32::MAX;

/// The two ends of a list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct List {
    head: u32,
    tail: u32,
}

impl List {
    pub(crate) const EMPTY: List = List { head: NIL, tail: NIL };

    /// Returns the node at the head: the one inserted first.
    pub(crate) fn head(&self) -> Option<u32> {
        (self.head != NIL).then_some(self.head)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.head == NIL
    }
}

#[derive(Clone, Copy, Debug)]
struct Node {
    prev: u32,
    next: u32,
    /// The caller's number for the list that holds the node; NIL: none.
    list: u32,
}

const UNLINKED: Node = Node { prev: NIL, next: NIL, list: NIL };

/// The links of all nodes, each in at most one of the caller's lists.
#[derive(Debug, Default)]
pub(crate) struct Links {
    nodes: Vec<Node>,
}

#[cfg(test)]
thread_local! {
    static STEPS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Returns the number of nodes visited, linked and unlinked so far by this thread: a measure of cost that is
/// the same on every machine.
#[cfg(test)]
pub(crate) fn steps() -> u64 {
    STEPS.get()
}

fn count_step() {
    #[cfg(test)]
    STEPS.set(STEPS.get() + 1);
}

impl Links {
    pub(crate) fn with_capacity(nodes: usize) -> Links {
        Links { nodes: Vec::with_capacity(nodes) }
    }

    /// Makes `node` a valid index.
    pub(crate) fn ensure(&mut self, node: u32) {
        if node as usize >= self.nodes.len() {
            self.nodes.resize(node as usize + 1, UNLINKED);
        }
    }

    /// Returns the number of valid indices.
    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Sets the number of valid indices to `nodes`, and frees the memory of the nodes beyond, which must not
    /// be in a list.
    pub(crate) fn resize(&mut self, nodes: usize) {
        debug_assert!(self.nodes.iter().skip(nodes).all(|node| node.list == NIL));
        let shrinks = nodes < self.nodes.len();
        self.nodes.resize(nodes, UNLINKED);
        if shrinks {
            self.nodes.shrink_to_fit();
        }
    }

    /// Returns the list that holds `node`.
    pub(crate) fn list_of(&self, node: u32) -> Option<u32> {
        let list = self.nodes.get(node as usize)?.list;
        (list != NIL).then_some(list)
    }

    /// Returns the node after `node` in its list.
    pub(crate) fn next(&self, node: u32) -> Option<u32> {
        count_step();
        let next = self.nodes[node as usize].next;
        (next != NIL).then_some(next)
    }

    /// Appends `node`, which must not be in a list, to the list with the number `id` and the ends `list`.
    pub(crate) fn push_back(&mut self, list: &mut List, id: u32, node: u32) {
        count_step();
        debug_assert_eq!(self.nodes[node as usize].list, NIL, "node {node} is in a list already");
        self.nodes[node as usize] = Node { prev: list.tail, next: NIL, list: id };
        if list.tail == NIL {
            list.head = node;
        } else {
            self.nodes[list.tail as usize].next = node;
        }
        list.tail = node;
    }

    /// Removes `node` from `list`, which must be the list that holds it.
    pub(crate) fn remove(&mut self, list: &mut List, node: u32) {
        count_step();
        let Node { prev, next, list: id } = std::mem::replace(&mut self.nodes[node as usize], UNLINKED);
        debug_assert_ne!(id, NIL, "node {node} is in no list");
        if prev == NIL {
            list.head = next;
        } else {
            self.nodes[prev as usize].next = next;
        }
        if next == NIL {
            list.tail = prev;
        } else {
            self.nodes[next as usize].prev = prev;
        }
    }

    pub(crate) fn iter<'a>(&'a self, list: &List) -> impl Iterator<Item = u32> + 'a {
        std::iter::successors(list.head(), |&node| self.next(node))
    }

    /// Panics unless `list` is well linked and every node stores the list `id`; returns its length.
    pub(crate) fn check(&self, list: &List, id: u32) -> usize {
        let mut prev = NIL;
        let mut count = 0;
        for node in self.iter(list) {
            let links = self.nodes[node as usize];
            assert_eq!(links.list, id, "node {node} stands in list {id}");
            assert_eq!(links.prev, prev, "node {node}'s predecessor");
            prev = node;
            count += 1;
            assert!(count <= self.nodes.len(), "list {id} has a cycle");
        }
        assert_eq!(list.tail, prev, "the tail of list {id}");
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_leave_from_either_end_and_the_middle() {
        let mut links = Links::default();
        links.ensure(4);
        let mut list = List::EMPTY;
        for node in 0..5 {
            links.push_back(&mut list, 7, node);
        }
        for node in [2, 0, 4] {
            links.remove(&mut list, node);
            assert_eq!(links.list_of(node), None);
        }
        assert_eq!(links.iter(&list).collect::<Vec<_>>(), [1, 3]);
        assert_eq!(links.check(&list, 7), 2);
        links.remove(&mut list, 1);
        links.remove(&mut list, 3);
        assert!(list.is_empty());
    }
}
