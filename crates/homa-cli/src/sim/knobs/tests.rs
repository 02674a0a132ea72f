//! Tests of the table of settings.

use super::super::preset::{PRESETS, named};
use super::*;

fn draft() -> SettingsDraft {
    SettingsDraft::new(named("sigcomm18").unwrap())
}

fn both() -> [String; 2] {
    [HOMA, DCTCP].map(str::to_owned)
}

fn built(settings: &[(&str, &str)]) -> Result<Map<String, Value>, String> {
    let mut draft = draft();
    settings.iter().try_for_each(|(name, text)| set(&mut draft, name, text))?;
    draft.build().map(|plan| setup(&plan, &both()))
}

#[test]
fn names_are_single() {
    let mut names: Vec<String> = KNOBS.iter().map(Knob::key).collect();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), KNOBS.len());
}

/// Checks that each setting affects the run.
#[test]
fn every_setting_takes_effect() {
    let said: &[(&str, &str, Value)] = &[
        ("workload", "w2", json!("w2")),
        ("max-message", "100kB", json!(100_000)),
        ("load", "0.3", json!(0.3)),
        ("exchange", "echo", json!("echo")),
        ("seed", "9", json!(9)),
        ("duration", "1ms", json!(1_000_000)),
        ("messages", "10", json!(10)),
        ("warm-up", "1ms", json!(1_000_000)),
        ("load-counts", "grants", json!("grants")),
        ("connections", "4", json!("4")),
        ("drain", "3ms", json!(3_000_000)),
        ("hosts", "20", json!(20)),
        ("racks", "2", json!(2)),
        ("spines", "3", json!(3)),
        ("rate", "25gbit", json!(25_000_000_000u64)),
        ("core_rate", "50gbit", json!(50_000_000_000u64)),
        ("propagation", "5ns", json!(5)),
        ("core-propagation", "6ns", json!(6)),
        ("switch-delay", "7ns", json!(7)),
        ("send-delay", "8ns", json!(8)),
        ("receive-delay", "9ns", json!(9)),
        ("spread", "flows", json!("flows")),
        ("forwarding", "cut-through", json!("cut-through")),
        ("queueing", "fifo", json!("fifo")),
        ("switch-priorities", "2", json!(2)),
        ("nic", "fifo", json!("fifo")),
        ("nic-queue", "3kB", json!(3_000)),
        ("shared-buffer", "1MB", json!(1_000_000)),
        ("buffer-share", "50", json!(50)),
        ("ecn", "30kB", json!(30_000)),
        ("loss", "0.001", json!(0.001)),
        ("mtu", "9000", json!(9_000)),
        ("bins", "5", json!(5)),
        ("sample", "1us", json!(1_000)),
        ("acquaint", "no", json!(false)),
        ("unsched-bytes", "5kB", json!(5_000)),
        ("window", "6kB", json!(6_000)),
        ("overcommit", "2", json!(2)),
        ("priorities", "6", json!(6)),
        ("scheduled-levels", "2", json!(2)),
        ("cutoffs", "100,200,300", json!([0, 0, u32::MAX, 300, 200, 100, 0, 0])),
        ("fifo-fraction", "70", json!(70)),
    ];
    let settings: Vec<(&str, &str)> = said.iter().map(|(name, text, _)| (*name, *text)).collect();
    let setup = built(&settings).unwrap();
    for (name, _, value) in said {
        assert_eq!(setup[&name.replace('-', "_")], *value, "{name}");
    }
    assert_eq!(setup["homa"]["max_packet"], json!(8_980));
    assert_eq!(built(&[("hosts-per-rack", "8")]).unwrap()["racks"], json!(18));
    assert_eq!(built(&[("topology", "switch")]).unwrap()["topology"], json!("switch"));
    assert_eq!(built(&[("outstanding", "16")]).unwrap()["outstanding"], json!(16));
    assert_eq!(built(&[("port-buffer", "90kB")]).unwrap()["port_buffer"], json!(90_000));
    assert_eq!(built(&[("homa", "deployed")]).unwrap()["homa_base"], json!("deployed"));
    assert_eq!(built(&[("homa.max_peers", "7")]).unwrap()["homa"]["max_peers"], json!(7));
}

#[test]
fn a_number_of_messages_lengthens_a_run_and_never_shortens_it() {
    let duration = |messages: &str| {
        let setup = built(&[("workload", "w5"), ("duration", "1ms"), ("messages", messages)]).unwrap();
        setup["duration"].as_u64().unwrap()
    };
    assert_eq!(duration("1"), 1_000_000);
    let thousand = duration("1000");
    assert!(thousand > 5_000_000 && duration("2000").abs_diff(2 * thousand) <= 1, "{thousand}");
}

#[test]
fn the_core_keeps_its_ratio() {
    assert_eq!(built(&[("rate", "100gbit")]).unwrap()["core_rate"], json!(400_000_000_000u64));
}

#[test]
fn an_error_names_the_setting_and_what_there_is() {
    for (settings, part) in [
        (&[("laod", "1")][..], "workload"),
        (&[("load-counts", "acks")], "load-counts: "),
        (&[("connections", "0")], "connections: must be at least 1, or message"),
        (&[("connections", "few")], "connections: `few` is no number"),
        (
            &[("workload", "w1"), ("warm-up", "30ms"), ("duration", "20ms")],
            "warm-up: 30.0 ms is longer than the measured 20.0 ms",
        ),
        (&[("load", "1.5")], "load: must be above 0 and at most 1"),
        (&[("spines", "0")], "spines: must be at least 1"),
        (&[("topology", "ring")], "leaf-spine or switch"),
        (&[("exchange", "both")], "exchange: "),
        (&[("topology", "switch"), ("spines", "2")], "spines: a single switch has none"),
        (&[("hosts", "10"), ("racks", "2"), ("hosts-per-rack", "2")], "racks: "),
        (&[("workload", "w9")], "w1 to w8"),
        (&[("load", "0.5"), ("senders", "3")], "load: an incast has no load"),
        (&[("buffer-share", "3")], "buffer-share"),
        (&[("duration", "50")], "duration: `50` is no time"),
        (&[("senders", "5"), ("messages", "9")], "messages: the senders and rounds of an incast"),
        (&[("outstanding", "5"), ("messages", "9")], "messages: a closed loop"),
        (&[("outstanding", "5"), ("load", "0.5")], "outstanding: cannot be combined with load"),
        (&[("outstanding", "0")], "outstanding: must be 1 to 100000"),
        (&[("messages", "99999999999999")], "messages: 99999999999999 take longer"),
    ] {
        let error = built(settings).expect_err(part);
        assert!(error.contains(part), "{settings:?}: {error}");
    }
}

#[test]
fn a_setting_of_one_transport_is_refused_and_left_out_without_it() {
    let homa = [HOMA.to_owned()];
    let error = check_concerns("ecn", &homa).unwrap_err();
    assert!(error.contains("ecn: it changes nothing without transport dctcp"), "{error}");
    assert_eq!(check_concerns("ecn", &both()), Ok(()));
    assert!(check_concerns("overcommit", &[DCTCP.to_owned()]).unwrap_err().contains("transport homa"));
    assert_eq!(check_concerns("hosts", &homa), Ok(()));
    assert!(!setup(&draft().build().unwrap(), &homa).contains_key("ecn"));
}

#[test]
fn presets_show_every_setting() {
    for preset in PRESETS {
        let plan = SettingsDraft::new(preset).build().unwrap();
        assert_eq!(setup(&plan, &both()).len(), KNOBS.len() + 4);
    }
}
