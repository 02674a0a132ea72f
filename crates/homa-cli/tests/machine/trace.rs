//! Tests merging the time traces of a rack, as a user would do it.

use std::fs::{self, File};

use super::common::traces::{dump_of, merged, planted, write};
use super::common::{Scratch, run, stderr};
use homa_trace::{Dump, read_dumps};

/// Changes the clock of a live dump, so that it has this offset at the start of the dump and runs fast from
/// then on. Removes the identity of the dump's machine.
fn plant_live(dump: &mut Dump, (offset_ns, ppm): (i64, f64)) {
    assert_ne!(dump.node.machine, 0, "live traces know their machine");
    dump.node.machine = 0;
    dump.start_ns = dump.start_ns.wrapping_add_signed(offset_ns);
    dump.frequency_hz = (dump.frequency_hz as f64 / (1.0 + ppm / 1e6)).round() as u64;
}

/// The rack's namespaces share a clock, so the injected differences are the only ones.
#[test]
fn planted_offsets_and_drifts_of_a_racks_hosts_are_found() {
    let scratch = Scratch::new("trace-rack");
    let (out, traces) = (scratch.path("out"), scratch.path("traces"));
    fs::create_dir(&out).expect("a directory");
    let words = "rack run load --hosts 4 --rate 100mbit --workload w3 --loads 0.3 --duration 2";
    let output = run(words.split(' ').chain(["--out", &out, "--trace", &traces]));
    // Exit code 1 means that RPCs failed, as they may on a busy machine. Their traces are just as useful.
    if !matches!(output.status.code(), Some(0 | 1)) {
        let said = stderr(&output);
        let no_rack = ["namespace", "cannot run `ip`", "cannot run `tc`"];
        assert!(no_rack.iter().any(|part| said.contains(part)), "{said}");
        return homa_testkit::skip(said);
    }
    let names = scratch.files("traces");
    assert_eq!(names.len(), 5, "four hosts and the switch: {names:?}");
    let mut truths = Vec::new();
    for (number, name) in names.iter().enumerate() {
        let name = format!("traces/{name}");
        let mut dump = dump_of(&scratch, &name);
        truths.push(dump.clone());
        plant_live(&mut dump, planted(number));
        write(&scratch, &name, &dump);
    }
    let out = scratch.path("merged.trace");
    let found = merged(&[&scratch.path("traces"), "--out", &out]);
    // On a busy machine, packets may be delayed more in one direction, so that the times of two hosts
    // contradict a packet between them. Tests in simulated time check that there are otherwise no warnings.
    assert!(found["warnings"].is_array());
    let dumps = read_dumps(&mut File::open(&out).expect("written")).expect("traces");
    for (number, (dump, truth)) in dumps.iter().zip(&truths).enumerate() {
        let node = &found["nodes"][number];
        let of = |name: &str| node[name].as_f64().expect("a number");
        // The precision depends on the load of the machine, but the stated uncertainty must be correct. The
        // first node keeps its own time. The likely error of the drift is not a bound, and is not included in
        // the bound of the times. On an idle machine, ten times the likely error is less than the smallest
        // injected drift.
        let most_ppm = 10.0 * of("likely_error_ppm").max(1.0);
        let middle = dump.records.len() / 2;
        let error = dump.time_ns(&dump.records[middle]).abs_diff(truth.time_ns(&truth.records[middle]));
        let ends =
            [&dump.records[0], &dump.records[dump.records.len() - 1]].map(|record| dump.time_ns(record));
        let drifted = (ends[1] - ends[0]) as f64 / 2.0 * most_ppm / 1e6;
        assert!(error as f64 <= of("max_error_ns") + drifted + 1.0, "{error} ns off: {node}");
        let ppm = of("drift_ppm") + planted(number).1;
        assert!(ppm.abs() <= most_ppm, "{ppm} ppm off: {node}");
    }
}
