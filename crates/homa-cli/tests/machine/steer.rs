//! Tests `homa steer` from the user's point of view: its errors, and its effect on a device (as root in a
//! namespace).

use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};

use super::common::{self, assert_output_refused, stderr};
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

/// Runs a shell script in a namespace with two veth pairs, and returns its output. Returns `None`, and prints
/// the reason, if a required privilege or tool is missing.
fn in_namespace(script: &str) -> Option<Output> {
    in_namespace_after(script, |_| {})
}

/// Like [`in_namespace`], but lets `prepare` change the command first.
fn in_namespace_after(script: &str, prepare: impl FnOnce(&mut Command)) -> Option<Output> {
    let begin = "ip link add a0 type veth peer name a1 && ip link add b0 type veth peer name b1 && echo ready && set -e; steer() { \"$homa\" steer \"$@\"; }\n";
    let mut command = Command::new("timeout");
    command
        .args(["300", "unshare", "--net", "sh", "-c", &format!("{begin}{script}")])
        .env("homa", env!("CARGO_BIN_EXE_homa"))
        .stdin(Stdio::null());
    prepare(&mut command);
    let output = match command.output() {
        Ok(output) => output,
        Err(error) => {
            homa_testkit::skip(format_args!("cannot run `timeout`: {error}"));
            return None;
        }
    };
    if output.stdout.starts_with(b"ready") {
        return Some(output);
    }
    homa_testkit::skip(stderr(&output).trim());
    None
}

/// Returns the part of the output that follows `ready`.
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
        errors.contains("`homa steer detach a0` detaches it") && errors.contains("b0 is not steered"),
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
    assert!(stderr(&output).contains("a0 is no longer steered"), "{}", stderr(&output));
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
    assert!(stderr(&output).contains("a0 accepts no XDP program in its driver (MTU 1500; for a veth"));
}

#[test]
fn where_the_kernel_steers_too_there_is_a_warning() {
    let script = "
        unshare --mount sh -ec '
            mount -t sysfs none /sys
            echo 1 > /sys/class/net/a0/queues/rx-0/rps_cpus
            $homa steer attach a0 b0 --policy rss-hash --cpus 0
            $homa steer detach a0
            # That nobody can read the warning ends nothing.
            $homa steer attach a0 --policy rss-hash --cpus 0 2>/dev/full'";
    let Some(output) = in_namespace(script) else { return };
    if !output.status.success() && stderr(&output).contains("sysfs") {
        return homa_testkit::skip(stderr(&output).trim());
    }
    let printed = printed(&output);
    assert!(printed.starts_with("a0, b0: rss-hash") && printed.contains("\na0: rss-hash"), "{printed}");
    let said = stderr(&output);
    assert!(said.starts_with("homa: warning: the kernel steers packets of a0, too (rps_cpus)"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}

#[test]
fn packets_pass_while_programs_come_and_go_and_are_refused() {
    let script = "
        command -v ping >/dev/null || { echo no ping; exit; }
        unshare --net sleep 300 >/dev/null 2>&1 & there=$!
        trap \"kill $there\" EXIT
        until [ \"$(readlink /proc/$there/ns/net)\" != \"$(readlink /proc/self/ns/net)\" ]; do :; done
        ip link set a1 netns $there
        far() { nsenter --net=/proc/$there/ns/net ip \"$@\"; }
        ip link set a0 up
        far link set a1 up
        ip addr add 10.79.0.1/24 dev a0
        far addr add 10.79.0.2/24 dev a1
        # A device that has just come up loses packets.
        until ping -q -c 1 -W 1 10.79.0.2 >/dev/null; do :; done
        ping -q -i 0.01 -w 280 10.79.0.2 > $out & pings=$!
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
        return homa_testkit::skip("no ping");
    }
    assert_eq!(said.matches("refused\n").count(), 12, "{said}");
    let summary = said.lines().find(|line| line.contains(" packets transmitted, ")).expect("of ping");
    let mut counts = summary.split(' ').filter_map(|word| word.parse::<u32>().ok());
    let [sent, answered] = [(); 2].map(|()| counts.next().expect("a number"));
    // The reply to the last request may arrive after the signal that ends `ping`.
    assert!(answered > 0 && sent - answered <= 1, "{said}");
}

/// Checks that each line of standard error is an error of the command, and that standard output contains "2"
/// (the exit code) the same number of times.
fn refusals(output: &Output) -> Vec<String> {
    let (said, errors) = (printed(output), stderr(output));
    let lines: Vec<String> = errors.lines().map(str::to_owned).collect();
    assert!(lines.iter().all(|line| line.starts_with("homa: ")), "{errors}");
    assert_eq!(said.lines().filter(|line| *line == "2").count(), lines.len(), "{said}{errors}");
    lines
}

#[test]
fn what_cannot_be_reported_is_not_attached() {
    let script = "
        cd $scratch
        mkfifo pipe
        head -n 1 pipe >/dev/null & reader=$!
        exec 3>pipe
        echo line >&3
        wait $reader
        set +e
        for words in '' --json --until-exit; do
            steer attach a0 b0 --policy rss-hash --cpus 0 $words >/dev/full; echo $?
            steer status
            steer attach a0 b0 --policy rss-hash --cpus 0 $words >&3; echo $?
            steer status
        done";
    let scratch = common::Scratch::new("steer-closed");
    let script = format!("scratch={}\n{script}", scratch.0.display());
    let Some(output) = in_namespace(&script) else { return };
    let (said, errors) = (printed(&output), stderr(&output));
    assert_eq!(said, "2\nno device is steered\n".repeat(6), "{errors}");
    assert_eq!(errors.matches("homa: cannot write to standard output").count(), 6, "{errors}");
}

#[test]
fn cores_that_are_switched_off_are_named_while_the_process_stays() {
    let script = "
        cd $scratch
        cat /sys/devices/system/cpu/online > online # written over in one go below: a look in between must not find it empty
        unshare --mount sh -ec '
            mount --bind online /sys/devices/system/cpu/online
            $homa steer attach a0 --policy rss-hash --cpus 0-1 --until-exit 2>warnings & pid=$!
            until $homa steer status a0 >/dev/null 2>&1; do kill -0 $pid; done
            printf %-8s 0 1<>online
            until grep -q off warnings; do kill -0 $pid; done
            printf %-8s 3-63 1<>online
            until [ $(grep -c off warnings) = 2 ]; do kill -0 $pid; done
            $homa steer status a0 --json | grep -c online.:.false
            kill -INT $pid
            wait $pid
            cat warnings'";
    if std::thread::available_parallelism().is_ok_and(|cores| cores.get() < 2) {
        return homa_testkit::skip("one core is never switched off");
    }
    let scratch = common::Scratch::new("steer-online");
    let Some(output) = in_namespace(&format!("scratch={}\n{script}", scratch.0.display())) else { return };
    let said = printed(&output);
    assert!(said.contains("a0: rss-hash over cores 0-1") && said.contains("\n2\n"), "{said}");
    let warnings: Vec<&str> = said.lines().filter(|line| line.starts_with("homa: warning: ")).collect();
    assert_eq!(warnings.len(), 2, "{said}");
    assert!(warnings[0].ends_with("core 1 was switched off: another one does its work"), "{said}");
    assert!(warnings[1].ends_with("core 0 was switched off: another one does its work"), "{said}");
}

const WITHOUT_RIGHTS: &str = "setpriv --reuid 65534 --bounding-set -all --inh-caps -all --";

#[test]
fn a_user_without_rights_is_told_which_are_missing() {
    let script = "
        $without true || { echo no setpriv; exit; }
        steer attach a0 --policy rss-hash --cpus 0 >/dev/null
        steer() { $without \"$homa\" steer \"$@\"; }
        set +e
        steer attach b0 --policy rss-hash --cpus 0; echo $?
        steer attach b0 --policy sparse --cpus 0 --until-exit; echo $?
        steer attach b0 --policy gen2 --cpus 0 --native --json; echo $?
        steer status; echo $?
        steer status a0; echo $?
        steer status a0 --cost 1ms --json; echo $?
        steer detach a0; echo $?
        $homa steer status a0 | grep -c 'steers all until it is detached'";
    let Some(output) = in_namespace(&format!("without='{WITHOUT_RIGHTS}'\n{script}")) else { return };
    if printed(&output).contains("no setpriv") {
        return homa_testkit::skip(stderr(&output).trim());
    }
    let errors = refusals(&output);
    assert_eq!(errors.len(), 7, "{errors:?}");
    for (line, device) in errors.iter().zip(["b0", "b0", "b0", "a0", "a0", "a0", "a0"]) {
        let begin =
            format!("homa: steering packets of {device} needs the capabilities CAP_BPF and CAP_NET_ADMIN");
        assert!(line.starts_with(&begin), "{line}");
    }
    assert!(printed(&output).ends_with("\n1\n"), "a0 is steered as before");
}

/// Root in a user namespace has all capabilities in that namespace, but not those of the initial one.
#[test]
fn root_of_a_user_namespace_is_told_what_it_lacks() {
    let script = "
        unshare --user --map-root-user true || { echo no namespace; exit; }
        set +e
        unshare --user --map-root-user --net sh -c '
            ip link add a0 type veth peer name a1
            for command in \"attach a0 --policy gen2 --cpus 0\" \"attach a0 --policy gen2 --cpus 0 --until-exit\"; do
                $homa steer $command; echo $?
            done'";
    let Some(output) = in_namespace(script) else { return };
    if printed(&output).contains("no namespace") {
        return homa_testkit::skip(stderr(&output).trim());
    }
    let errors = refusals(&output);
    assert_eq!(errors.len(), 2, "{errors:?}");
    let part = "needs the capabilities CAP_BPF and CAP_NET_ADMIN";
    assert!(errors.iter().all(|line| line.contains(part) && line.contains("user namespace")), "{errors:?}");
}

/// A command of bpf(2); `None` means all commands.
type BpfCommand = Option<u32>;
const MAP_CREATE: BpfCommand = Some(0);
const PROG_LOAD: BpfCommand = Some(5);

/// Makes bpf(2) fail with this error in the command and its children, as on a kernel that lacks a feature.
fn without_bpf(command: &mut Command, bpf: BpfCommand, errno: i32) {
    const NUMBER: u32 = 0;
    const FIRST_ARGUMENT: u32 = 16;
    let load = |at| libc::sock_filter {
        code: (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16,
        jt: 0,
        jf: 0,
        k: at,
    };
    let skip = |unless, steps| libc::sock_filter {
        code: (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16,
        jt: 0,
        jf: steps,
        k: unless,
    };
    let answer = |k| libc::sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k };
    let checks = if let Some(number) = bpf { vec![load(FIRST_ARGUMENT), skip(number, 1)] } else { vec![] };
    let mut filter = vec![load(NUMBER), skip(libc::SYS_bpf as u32, checks.len() as u8 + 1)];
    filter.extend(checks);
    filter.extend([answer(libc::SECCOMP_RET_ERRNO | errno as u32), answer(libc::SECCOMP_RET_ALLOW)]);
    let begin = move || {
        let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
        // SAFETY: this prctl takes only numbers.
        let alone = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
        let mode = libc::SECCOMP_MODE_FILTER;
        // SAFETY: the program states its number of instructions correctly; they outlive the call and are only
        // read.
        if alone != 0 || unsafe { libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program) } != 0 {
            return Err(std::io::Error::last_os_error());
        }
        Ok(())
    };
    // SAFETY: the closure only makes system calls, which are permitted between fork and exec.
    unsafe { command.pre_exec(begin) };
}

#[test]
fn a_kernel_that_lacks_something_is_named() {
    let script = "
        set +e
        steer attach a0 --policy sparse --cpus 0; echo $?
        steer attach a0 b0 --policy gen2 --cpus 0 --until-exit --json; echo $?
        ip link show a0 | grep -c xdp";
    for (bpf, errno, part) in [
        (MAP_CREATE, libc::EINVAL, "needs XDP and CPUMAP"),
        (PROG_LOAD, libc::EINVAL, "needs XDP and CPUMAP"),
        (None, libc::ENOSYS, "needs XDP and CPUMAP"),
        (None, libc::EPERM, "needs the capabilities CAP_BPF"),
    ] {
        let Some(output) =
            in_namespace_after(&format!("{script} || true"), |command| without_bpf(command, bpf, errno))
        else {
            return;
        };
        let errors = refusals(&output);
        assert_eq!(errors.len(), 2, "{errors:?}");
        assert!(
            errors.iter().all(|line| line.contains(part) && line.contains("a0")),
            "{bpf:?} {errno}: {errors:?}"
        );
        assert!(printed(&output).ends_with("\n0\n"), "nothing is attached");
    }
}
