//! Writes one line for each event, in chronological order.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt::Write as _;
use std::io::{self, Write};

use homa_analysis::Model;
use homa_analysis::model::{EventRef, NodeId};
use homa_trace::NodeKind;

use super::Filter;
use super::digits::{pad, push_us};
use super::event_text::EventText;

/// Widths of the columns for a time, the time since the previous line, and an event's name.
const TIME: usize = 14;
const SINCE: usize = 9;
const EVENT: usize = 16;

/// Writes the columns: time and time since the previous line, both in microseconds, node, core, event, RPC,
/// arguments.
pub fn write(model: &Model, filter: &Filter, out: &mut impl Write) -> io::Result<()> {
    let width = model.nodes.iter().map(|node| node.name.chars().count()).max().unwrap_or(0);
    let mut before = None;
    // The line buffer is reused for all lines.
    let mut line = String::new();
    for (time, EventRef { node, index }) in ChronologicalEvents::new(model, filter) {
        let node = &model.nodes[usize::from(node)];
        let record = &node.records[index as usize];
        line.clear();
        push_us(&mut line, time, TIME);
        line.push_str(" us (+");
        push_us(&mut line, time - before.unwrap_or(time), SINCE);
        line.push_str(" us) ");
        pad(&mut line, &node.name, width);
        // Writing to a string cannot fail.
        let _ = match record.place.core() {
            Some(core) if node.kind == NodeKind::Host => write!(line, " [C{core:02}] "),
            _ => write!(line, " [C--] "),
        };
        match record.event() {
            Some(kind) => pad(&mut line, kind.name(), EVENT),
            None => pad(&mut line, &format!("kind_{}", record.kind), EVENT),
        }
        if record.id != 0 {
            let _ = write!(line, " rpc {}", record.id);
        }
        let _ = writeln!(line, " {}", EventText { node, record });
        out.write_all(line.as_bytes())?;
        before = Some(time);
    }
    Ok(())
}

/// The selected events in chronological order. Simultaneous events are sorted by node, then by their order in
/// the node's records. Merging is sufficient, because each node's events are already sorted.
struct ChronologicalEvents<'a> {
    model: &'a Model,
    filter: &'a Filter,
    /// The next event of each node.
    next: BinaryHeap<Reverse<(u64, NodeId, u32)>>,
}

impl<'a> ChronologicalEvents<'a> {
    fn new(model: &'a Model, filter: &'a Filter) -> ChronologicalEvents<'a> {
        let mut all = ChronologicalEvents { model, filter, next: BinaryHeap::new() };
        for node in (0..=NodeId::MAX).take(model.nodes.len()).filter(|node| filter.has_node(*node)) {
            all.next.extend(all.first_from(node, 0));
        }
        all
    }

    /// Returns the first selected event of a node at this index or later.
    fn first_from(&self, node: NodeId, index: u32) -> Option<Reverse<(u64, NodeId, u32)>> {
        let records = self.model.nodes[usize::from(node)].records.get(index as usize..)?;
        let (ahead, record) = (0..).zip(records).find(|(_, record)| self.filter.has(record))?;
        Some(Reverse((record.time, node, index + ahead)))
    }
}

impl Iterator for ChronologicalEvents<'_> {
    type Item = (u64, EventRef);

    fn next(&mut self) -> Option<(u64, EventRef)> {
        let Reverse((time, node, index)) = *self.next.peek()?;
        let following = self.first_from(node, index.saturating_add(1));
        let mut place = self.next.peek_mut()?;
        match following {
            // The event is changed in place, because it usually stays near the top.
            Some(following) => *place = following,
            None => drop(std::collections::binary_heap::PeekMut::pop(place)),
        }
        Some((time, EventRef { node, index }))
    }
}
