//! `homa steer` as a user meets it: how it fails, and what it does at a device (as root, in a namespace).

mod common;

use std::process::{Command, Output, Stdio};

use common::{assert_output_refused, stderr};
use serde_json::Value;

fn run(words: &[&str]) -> Output {
    let homa = env!("CARGO_BIN_EXE_homa");
    Command::new(homa).arg("steer").args(words).stdin(Stdio::null()).output().expect("the binary runs")
}

#[test]
fn what_cannot_be_is_refused_in_one_line() {
    for (words, part) in [
        ("attach", "DEV"),
        ("attach none0 --cpus 0", "--policy"),
        ("attach none0 --policy rss-hash", "--cpus"),
        (
            "attach none0 --policy rps --cpus 0",
            "there is no policy rps: use rss-hash, sparse, homa-hash, gen2",
        ),
        ("attach none0 --policy least-loaded --cpus 0", "needs the loads of the cores"),
        ("attach none0 --policy sparse --cpus 0-", "is no list of cores"),
        ("attach none0 --policy sparse --cpus 0-70", "71 cores are too many"),
        ("attach none0 --policy sparse --cpus 9999", "core 9999 is out of reach"),
        ("attach none0 --policy sparse --cpus 255", "core 255 is not online"),
        ("attach none0 --policy sparse --cpus 0 --levels 6", "--levels"),
        ("attach none0 --policy sparse --cpus 0 --filter icmp", "--filter"),
        ("attach none0 --policy sparse --cpus 0 --queue 0", "--queue"),
        ("attach none0 --policy sparse --cpus 0", "no interface none0"),
        ("attach none0 --policy sparse --cpus 0 --until-exit", "no interface none0"),
        ("status none0", "no interface none0"),
        ("status none0 --cost 1", "is no time"),
        ("detach none0", "no interface none0"),
        ("detach", "DEV"),
    ] {
        let words: Vec<&str> = words.split(' ').collect();
        assert_output_refused(&words, &run(&words), part);
    }
}

#[test]
fn a_user_without_rights_is_told_which_are_missing() {
    let script = "exec setpriv --reuid 65534 --bounding-set -all --inh-caps -all -- \"$@\"";
    for words in [
        "attach lo --policy rss-hash --cpus 0",
        "attach lo --policy sparse --cpus 0 --until-exit",
        "attach lo --policy gen2 --cpus 0 --native --json",
    ] {
        let words: Vec<&str> = words.split(' ').collect();
        let output = Command::new("sh")
            .args(["-c", script, "sh", env!("CARGO_BIN_EXE_homa"), "steer"])
            .args(&words)
            .stdin(Stdio::null())
            .output()
            .expect("a shell");
        if !stderr(&output).starts_with("homa:") {
            return println!("skipped: {}", stderr(&output).trim());
        }
        assert_output_refused(&words, &output, "CAP_BPF and CAP_NET_ADMIN");
    }
}

/// What a script of a shell prints and says in a namespace with two veth pairs; `None`, with the reason printed, where that needs
/// a privilege or a tool that
/// the test lacks.
fn in_namespace(script: &str) -> Option<Output> {
    let begin = "ip link add a0 type veth peer name a1 && ip link add b0 type veth peer name b1 && echo ready && set -e; steer() { \"$homa\" steer \"$@\"; }\n";
    let output = Command::new("timeout")
        .args(["60", "unshare", "--net", "sh", "-c", &format!("{begin}{script}")])
        .env("homa", env!("CARGO_BIN_EXE_homa"))
        .stdin(Stdio::null())
        .output()
        .ok()?;
    if output.stdout.starts_with(b"ready") {
        return Some(output);
    }
    println!("skipped: {}", stderr(&output).trim());
    None
}

/// What was printed after `ready`.
fn printed(output: &Output) -> String {
    assert!(output.status.success(), "{}", stderr(output));
    String::from_utf8_lossy(&output.stdout).trim_start_matches("ready\n").to_owned()
}

#[test]
fn a_device_is_steered_until_it_is_detached() {
    let script = "
        steer attach a0 --policy sparse --cpus 0 --levels 3 --filter tcp,homa
        steer attach b0 --policy gen2 --cpus 0 --json >/dev/null
        steer status
        steer status a0 b0 --json
        steer detach a0 b0
        steer status";
    let Some(output) = in_namespace(script) else { return };
    let said = printed(&output);
    assert!(said.starts_with("a0: sparse over cores 0, in the kernel's receive path\n"), "{said}");
    assert!(said.contains("3 levels; steers homa, tcp until it is detached"), "{said}");
    assert!(said.ends_with("a0, b0: not steered any more\nno device is steered\n"), "{said}");
    let json = &said[said.find('[').expect("JSON")..=said.rfind(']').expect("JSON")];
    let json: Value = serde_json::from_str(json).expect("valid JSON");
    assert_eq!((&json[0]["policy"], &json[1]["policy"]), (&"sparse".into(), &"gen2".into()));
    assert_eq!((&json[0]["levels"], &json[1]["levels"]), (&3.into(), &Value::Null));
    assert_eq!((&json[0]["packets"], &json[0]["drops"]), (&0.into(), &0.into()));
}

#[test]
fn a_second_program_is_refused_and_what_is_not_steered_cannot_be_detached() {
    let script = "
        steer attach a0 --policy rss-hash --cpus 0
        set +e
        steer attach a0 --policy rss-hash --cpus 0; echo $?
        steer attach b0 a0 --policy rss-hash --cpus 0 --until-exit; echo $?
        steer detach b0; echo $?
        steer status b0; echo $?
        steer detach a0";
    let Some(output) = in_namespace(script) else { return };
    let said = printed(&output);
    assert_eq!(said.lines().filter(|line| *line == "2").count(), 4, "{said}");
    let errors = stderr(&output);
    assert_eq!(errors.lines().count(), 4, "{errors}");
    assert!(
        errors.contains("`homa steer detach a0` takes it off") && errors.contains("b0 is not steered"),
        "{errors}"
    );
}

#[test]
fn what_a_process_holds_ends_with_it_in_whatever_way() {
    let script = "
        for signal in INT TERM KILL; do
            $homa steer attach a0 b0 --policy homa-hash --cpus 0 --until-exit & pid=$!
            until steer status a0 b0 >/dev/null 2>&1; do :; done
            steer status b0 | grep -o 'the process that attached it'
            kill -$signal $pid
            wait $pid || true
            while steer status a0 >/dev/null 2>&1 || steer status b0 >/dev/null 2>&1; do :; done
        done
        $homa steer attach a0 --policy homa-hash --cpus 0 --until-exit & pid=$!
        until steer status a0 >/dev/null 2>&1; do :; done
        ip link del a0
        wait $pid || echo ended $?";
    let Some(output) = in_namespace(script) else { return };
    let said = printed(&output);
    assert_eq!(said.matches("the process that attached it").count(), 3, "{said}");
    assert!(said.ends_with("ended 2\n"), "{said}");
    assert!(stderr(&output).contains("a0 is steered no more"), "{}", stderr(&output));
}

#[test]
fn what_cannot_run_in_a_driver_is_refused_and_runs_generically() {
    let script = "
        ip link set a1 mtu 9000
        steer attach a0 --policy rss-hash --cpus 0 --native || echo refused $?
        steer attach a0 --policy rss-hash --cpus 0
        steer attach b0 --policy rss-hash --cpus 0 --native";
    let Some(output) = in_namespace(script) else { return };
    let said = printed(&output);
    assert!(
        said.starts_with("refused 2\na0: rss-hash over cores 0, in the kernel's receive path\n"),
        "{said}"
    );
    assert!(said.contains("b0: rss-hash over cores 0, in the device's driver"), "{said}");
    assert!(stderr(&output).contains("a0 takes no XDP program in its driver (its MTU is 1500; of a veth"));
}

#[test]
fn where_the_kernel_steers_too_there_is_a_warning() {
    let script = "
        unshare --mount sh -ec '
            mount -t sysfs none /sys
            echo 1 > /sys/class/net/a0/queues/rx-0/rps_cpus
            $homa steer attach a0 b0 --policy rss-hash --cpus 0'";
    let Some(output) = in_namespace(script) else { return };
    if !output.status.success() && stderr(&output).contains("sysfs") {
        return println!("skipped: {}", stderr(&output).trim());
    }
    assert!(printed(&output).starts_with("a0, b0: rss-hash"));
    let said = stderr(&output);
    assert!(said.starts_with("homa: warning: the kernel steers packets of a0, too (rps_cpus)"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}

#[test]
fn packets_pass_while_programs_come_and_go_and_are_refused() {
    let script = "
        command -v ping >/dev/null || { echo no ping; exit; }
        unshare --net sleep 60 >/dev/null 2>&1 & there=$!
        trap \"kill $there\" EXIT
        until [ \"$(readlink /proc/$there/ns/net)\" != \"$(readlink /proc/self/ns/net)\" ]; do :; done
        ip link set a1 netns $there
        far() { nsenter --net=/proc/$there/ns/net ip \"$@\"; }
        ip link set a0 up
        far link set a1 up
        ip addr add 10.79.0.1/24 dev a0
        far addr add 10.79.0.2/24 dev a1
        ping -q -c 1 10.79.0.2 >/dev/null
        ping -q -i 0.01 -w 50 10.79.0.2 > $out & pings=$!
        for policy in rss-hash sparse homa-hash gen2; do
            steer attach a0 --policy $policy --cpus 0
            steer attach a0 --policy $policy --cpus 0 2>/dev/null || echo refused
            steer attach a0 --policy nonsense --cpus 0 2>/dev/null || echo refused
            steer attach a0 --policy $policy --cpus 200 2>/dev/null || echo refused
            until steer status a0 --json | grep -q '\"packets\": [1-9]'; do :; done
            steer detach a0
        done
        kill -INT $pings
        wait $pings || true
        cat $out";
    let out = format!("{}/ping-{}", env!("CARGO_TARGET_TMPDIR"), std::process::id());
    let Some(output) = in_namespace(&format!("out={out}\n{script}")) else { return };
    let said = printed(&output);
    if said.contains("no ping") {
        return println!("skipped: no ping");
    }
    assert_eq!(said.matches("refused\n").count(), 12, "{said}");
    assert!(said.contains(", 0% packet loss"), "{said}");
}
