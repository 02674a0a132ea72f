//! The steering state of a device, as a table and as JSON.

use std::fmt::Write;

use homa_steer::PolicyName;
use homa_steer_xdp::{CoreStatus, Cost, Status};
use serde_json::{Value, json};

/// Briefly describes a policy on a set of cores.
pub fn describe(policy: PolicyName, cores: &str, native: bool) -> String {
    let place = if native { "in the device's driver" } else { "in the kernel's receive path" };
    format!("{policy} over cores {cores}, {place}")
}

/// Returns the mean nanoseconds per decision, if any decision was measured.
fn mean_ns(cost: &Cost) -> Option<f64> {
    (cost.runs > 0).then(|| cost.run_ns as f64 / cost.runs as f64)
}

/// Formats the state as a table for a terminal.
pub fn table((status, cost): &(Status, Option<Cost>)) -> String {
    let cores: Vec<String> = status.cores.iter().map(|core| core.core.to_string()).collect();
    let mut text =
        format!("{}: {}", status.device, describe(status.policy, &cores.join(","), status.is_native));
    if let Some(levels) = status.levels {
        let _ = write!(text, ", {levels} levels");
    }
    let filter: Vec<&str> = status.filter.names().collect();
    let until =
        if status.held_by_process { "the end of the process that attached it" } else { "it is detached" };
    let _ = writeln!(text, "; steers {} until {until}", filter.join(", "));
    let _ =
        writeln!(text, "{:<8}{:>14}{:>14}{:>10}{:>10}", "core", "packets", "handed over", "flows", "drops");
    for core in &status.cores {
        let CoreStatus { core, is_online, packets, handed_over, drops, flows } = core;
        let offline = if *is_online { "" } else { "   not online: another core does its work" };
        let _ = writeln!(text, "{core:<8}{packets:>14}{handed_over:>14}{flows:>10.0}{drops:>10}{offline}");
    }
    let _ = writeln!(text, "{:<8}{:>14}{:>34}", "all", status.packets(), status.drops());
    for (reason, count) in &status.decisions {
        let _ = writeln!(text, "  {:<16}{count:>14}", reason.name());
    }
    let _ = writeln!(text, "  {:<16}{:>14}", "not steered", status.others);
    match cost.as_ref().map(|cost| (cost.runs, mean_ns(cost))) {
        Some((runs, Some(ns))) => {
            let _ = writeln!(text, "a decision took {ns:.0} ns, the mean of {runs}");
        }
        Some(_) => {
            let _ = writeln!(text, "no packet came while decisions were measured");
        }
        None => {}
    }
    text
}

/// Returns the state as JSON.
pub fn as_json((status, cost): &(Status, Option<Cost>)) -> Value {
    let core = |core: &CoreStatus| {
        json!({
            "core": core.core,
            "online": core.is_online,
            "packets": core.packets,
            "handed_over": core.handed_over,
            "flows": core.flows,
            "drops": core.drops,
        })
    };
    let decisions: serde_json::Map<String, Value> =
        status.decisions.iter().map(|(reason, count)| (reason.name().to_owned(), json!(count))).collect();
    json!({
        "device": status.device,
        "policy": status.policy.entry().name,
        "levels": status.levels,
        "filter": status.filter.names().collect::<Vec<_>>(),
        "native": status.is_native,
        "held_by_process": status.held_by_process,
        "packets": status.packets(),
        "drops": status.drops(),
        "not_steered": status.others,
        "cores": status.cores.iter().map(core).collect::<Vec<_>>(),
        "decisions": decisions,
        "cost": cost.as_ref().map(|cost| json!({ "decisions": cost.runs, "mean_ns": mean_ns(cost) })),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use homa_steer::Reason;
    use homa_steer_xdp::Filter;

    fn status() -> Status {
        let core = |core, packets, is_online| CoreStatus {
            core,
            is_online,
            packets,
            handed_over: packets - 1,
            drops: 2,
            flows: 3.4,
        };
        Status {
            device: "eth7".to_owned(),
            policy: PolicyName::Sparse,
            levels: Some(4),
            filter: Filter { tcp: true, homa: true, ..Filter::NONE },
            is_native: false,
            held_by_process: true,
            cores: vec![core(0, 10, true), core(5, 20, false)],
            decisions: vec![(Reason::KnownFlow, 28), (Reason::NewFlow, 2)],
            others: 7,
        }
    }

    #[test]
    fn a_table_has_every_number_and_what_is_wrong() {
        let text = table(&(status(), Some(Cost { runs: 4, run_ns: 300 })));
        for part in [
            "eth7: sparse over cores 0,5, in the kernel's receive path, 4 levels; steers homa, tcp until the end of the process",
            "known-flow                  28",
            "not steered                  7",
            "not online",
            "took 75 ns, the mean of 4",
        ] {
            assert!(text.contains(part), "{part} in\n{text}");
        }
        assert!(table(&(status(), Some(Cost { runs: 0, run_ns: 0 }))).contains("no packet came"));
    }

    #[test]
    fn json_has_the_same() {
        let json = as_json(&(status(), Some(Cost { runs: 4, run_ns: 300 })));
        assert_eq!(
            (&json["packets"], &json["drops"], &json["not_steered"]),
            (&json!(30), &json!(4), &json!(7))
        );
        assert_eq!(json["decisions"], json!({ "known-flow": 28, "new-flow": 2 }));
        assert_eq!(json["cores"][1]["online"], json!(false));
        assert_eq!(json["filter"], json!(["homa", "tcp"]));
        assert_eq!(json["cost"]["mean_ns"], json!(75.0));
    }
}
