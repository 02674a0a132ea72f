//! A line for each event, in the order of time.

use std::io::{self, Write};

use homa_analysis::Model;
use homa_analysis::model::{EventRef, NodeId};

use super::Filter;
use super::words::Words;

/// Time and time since the line before, both in microseconds, node, core, event, RPC, arguments.
pub fn write(model: &Model, filter: &Filter, out: &mut impl Write) -> io::Result<()> {
    let mut events: Vec<(u64, EventRef)> = Vec::new();
    for (node, of_node) in (0..=NodeId::MAX).zip(&model.nodes).filter(|(node, _)| filter.has_node(*node)) {
        let wanted = (0..=u32::MAX).zip(&of_node.records).filter(|(_, record)| filter.has(record));
        events.extend(wanted.map(|(index, record)| (record.time, EventRef { node, index })));
    }
    // Stable, so that events of one moment stay in the order in which their node recorded them.
    events.sort_by_key(|(time, _)| *time);
    let width = model.nodes.iter().map(|node| node.name.chars().count()).max().unwrap_or(0);
    let mut before = events.first().map_or(0, |(time, _)| *time);
    for (time, event) in events {
        let (node, record) = (&model.nodes[usize::from(event.node)], model.record(event));
        write!(out, "{:>14.3} us (+{:>9.3} us) {:<width$} ", us(time), us(time - before), node.name)?;
        match record.place.core() {
            Some(core) if node.kind == homa_trace::NodeKind::Host => write!(out, "[C{core:02}] ")?,
            _ => write!(out, "[C--] ")?,
        }
        match record.event() {
            Some(kind) => write!(out, "{kind:<16}")?,
            None => write!(out, "kind_{:<11}", record.kind)?,
        }
        if record.id != 0 {
            write!(out, " rpc {}", record.id)?;
        }
        writeln!(out, " {}", Words { node, record })?;
        before = time;
    }
    Ok(())
}

fn us(ns: u64) -> f64 {
    ns as f64 / 1e3
}
