//! The node of a trace.

use std::collections::BTreeMap;

/// Maximum length of a name in a dump, in bytes, inclusive; longer names are truncated.
pub const NAME_MAX_BYTES: usize = 255;

/// The kind of node that recorded a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum NodeKind {
    /// A host, whose records have a peer, a priority and a core ([`Place::at_host`](crate::Place::at_host)).
    #[default]
    Host = 0,
    /// A switch, whose records have a port and a queue ([`Place::in_switch`](crate::Place::in_switch)).
    Switch = 1,
}

impl NodeKind {
    pub(crate) const fn from_u16(value: u16) -> Option<NodeKind> {
        match value {
            0 => Some(NodeKind::Host),
            1 => Some(NodeKind::Switch),
            _ => None,
        }
    }
}

/// The host or switch that recorded a trace. Names are only for people; no analysis depends on them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// Host or switch.
    pub kind: NodeKind,
    /// The node's name; empty if none was given.
    pub name: String,
    /// Names for the numbers in the node's records: a host's peer addresses, or a switch's port devices.
    pub others: BTreeMap<u16, String>,
    /// Identifies the machine until it reboots: nodes with the same number share one `CLOCK_MONOTONIC_RAW`. 0
    /// if the machine is unknown or the node is simulated.
    pub machine: u64,
}

impl Node {
    /// Creates a host with this name, without names for its peers.
    #[must_use]
    pub fn host(name: impl Into<String>) -> Node {
        Node { name: name.into(), ..Node::default() }
    }

    /// Creates a switch with this name and these ports, numbered from 0.
    #[must_use]
    pub fn switch(name: impl Into<String>, ports: impl IntoIterator<Item = String>) -> Node {
        Node { kind: NodeKind::Switch, name: name.into(), others: (0..).zip(ports).collect(), machine: 0 }
    }

    /// Merges in the names of another recorder of the same host. Returns a map from the numbers of `other` to
    /// the numbers in this node. Equal names get equal numbers, and `u16::MAX` stands for all names for which
    /// no number is left.
    pub(crate) fn adopt(&mut self, other: &Node) -> BTreeMap<u16, u16> {
        let mut known: BTreeMap<String, u16> =
            self.others.iter().map(|(number, name)| (name.clone(), *number)).collect();
        let mut next = 1;
        let mut numbers = BTreeMap::new();
        for (number, name) in &other.others {
            let here = *known.entry(name.clone()).or_insert_with(|| {
                while next < u16::MAX && self.others.contains_key(&next) {
                    next += 1;
                }
                self.others.entry(next).or_insert_with(|| name.clone());
                next
            });
            numbers.insert(*number, here);
        }
        numbers
    }

    /// Encodes the node: kind (2 bytes), number of other names (4), machine (8) and the node's name; then for
    /// each other name its number (2) and the name. A name is encoded as its length (2) and its bytes. The
    /// encoding is padded with zeros to whole words.
    pub(crate) fn to_words(&self) -> Vec<u64> {
        let mut bytes = Vec::new();
        bytes.extend((self.kind as u16).to_le_bytes());
        bytes.extend((self.others.len() as u32).to_le_bytes());
        bytes.extend(self.machine.to_le_bytes());
        put_name(&mut bytes, &self.name);
        for (number, name) in &self.others {
            bytes.extend(number.to_le_bytes());
            put_name(&mut bytes, name);
        }
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect()
    }

    /// Decodes words from [`to_words`](Node::to_words). Returns `None` if they are malformed.
    pub(crate) fn from_words(words: &[u64]) -> Option<Node> {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let mut rest = &bytes[..];
        let kind = NodeKind::from_u16(u16::from_le_bytes(take(&mut rest)?))?;
        let count = u32::from_le_bytes(take(&mut rest)?);
        let machine = u64::from_le_bytes(take(&mut rest)?);
        let name = take_name(&mut rest)?;
        let mut others = BTreeMap::new();
        for _ in 0..count {
            let number = u16::from_le_bytes(take(&mut rest)?);
            others.insert(number, take_name(&mut rest)?);
        }
        let padding = rest.len() < 8 && rest.iter().all(|byte| *byte == 0);
        padding.then_some(Node { kind, name, others, machine })
    }
}

/// Returns a number for this machine, derived from the random ID that Linux generates at each boot, or 0 if
/// the ID cannot be read.
pub(crate) fn this_machine() -> u64 {
    let drawn = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: String = drawn.chars().filter(char::is_ascii_hexdigit).take(16).collect();
    u64::from_str_radix(&digits, 16).unwrap_or(0)
}

fn put_name(bytes: &mut Vec<u8>, name: &str) {
    let end = (0..=name.len().min(NAME_MAX_BYTES)).rev().find(|end| name.is_char_boundary(*end));
    let name = &name[..end.unwrap_or(0)];
    bytes.extend((name.len() as u16).to_le_bytes());
    bytes.extend(name.as_bytes());
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, left) = rest.split_first_chunk::<N>()?;
    *rest = left;
    Some(*taken)
}

fn take_name(rest: &mut &[u8]) -> Option<String> {
    let length = usize::from(u16::from_le_bytes(take(rest)?));
    let (name, left) = rest.split_at_checked(length).filter(|_| length <= NAME_MAX_BYTES)?;
    *rest = left;
    // The name is shown on terminals, which interpret control characters.
    Some(str::from_utf8(name).ok()?.replace(char::is_control, "\u{fffd}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_comes_back_from_its_words() {
        let mut host = Node::host("h1");
        host.others.insert(7, "10.0.0.2:4000".into());
        host.others.insert(9, String::new());
        host.machine = this_machine();
        for node in [Node::default(), host, Node::switch("tor", ["veth1".into(), "veth2".into()])] {
            assert_eq!(Node::from_words(&node.to_words()), Some(node));
        }
    }

    #[test]
    fn long_names_are_cut_between_characters() {
        let node = Node::host("ä".repeat(200));
        let read = Node::from_words(&node.to_words()).expect("a node");
        assert_eq!(read.name, "ä".repeat(NAME_MAX_BYTES / 2));
    }

    #[test]
    fn what_a_terminal_would_obey_is_replaced() {
        let mut node = Node::host("a\x1b[2Jb\n");
        node.others.insert(1, "\u{9b}31m\t".to_owned());
        let read = Node::from_words(&node.to_words()).expect("a node");
        assert_eq!((&*read.name, &*read.others[&1]), ("a\u{fffd}[2Jb\u{fffd}", "\u{fffd}31m\u{fffd}"));
    }

    #[test]
    fn other_words_are_no_node() {
        let words = Node::switch("tor", ["veth1".into()]).to_words();
        assert_eq!(Node::from_words(&words[..words.len() - 1]), None, "cut short");
        assert_eq!(Node::from_words(&[&words[..], &[0]].concat()), None, "more than there is");
        assert_eq!(Node::from_words(&[u64::MAX; 4]), None);
        // This name is longer than any name that a recorder writes.
        let words = Node::host("n".repeat(NAME_MAX_BYTES)).to_words();
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        assert!(Node::from_words(&words).is_some());
        bytes[14..16].copy_from_slice(&(NAME_MAX_BYTES as u16 + 1).to_le_bytes());
        let longer: Vec<u64> =
            bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
        assert_eq!(Node::from_words(&longer), None);
    }
}
