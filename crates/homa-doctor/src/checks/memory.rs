//! Checks of memory management: huge pages, swap, NUMA balancing.

use super::finding::{Finding, Severity};
use super::host::{Host, NOT_MEASURED};

/// Returns the findings about memory.
pub fn check(host: &Host) -> Vec<Finding> {
    vec![huge_pages(host), swap(host), balancing(host)]
}

fn huge_pages(host: &Host) -> Finding {
    let directory = "sys/kernel/mm/transparent_hugepage";
    let finding =
        Finding::ok("huge_pages", "threads never wait for the assembly of a huge page").source(NOT_MEASURED);
    let read = |file: &str| host.root.read(&format!("{directory}/{file}"));
    let (enabled, defrag) = match (read("enabled"), read("defrag")) {
        (Ok(enabled), Ok(defrag)) => (enabled, defrag),
        (Err(error), _) | (_, Err(error)) => {
            return finding.read(directory, &error).unknown("the kernel has none, or hides it", "");
        }
    };
    let finding =
        finding.read(&format!("{directory}/enabled"), &enabled).read(&format!("{directory}/defrag"), &defrag);
    if enabled.contains("[always]") && defrag.contains("[always]") {
        return finding.with_severity(
            Severity::Cost,
            "any page fault may wait while the kernel compacts memory",
            &format!("echo madvise > /{directory}/defrag"),
        );
    }
    if enabled.contains("[always]") {
        return finding.with_severity(
            Severity::Note,
            "a kernel thread assembles huge pages, and threads that access them meanwhile wait",
            &format!("echo madvise > /{directory}/enabled"),
        );
    }
    finding
}

fn swap(host: &Host) -> Finding {
    let path = "proc/swaps";
    let finding = Finding::ok("swap", "there is no swap space").source(NOT_MEASURED);
    match host.root.read(path) {
        // The first line is a header.
        Ok(text) if text.lines().count() > 1 => {
            let names: Vec<&str> =
                text.lines().skip(1).filter_map(|line| line.split_ascii_whitespace().next()).collect();
            finding.read(path, &names.join(", ")).with_severity(
                Severity::Note,
                "memory that was not used for a while may be on disk when a request needs it",
                "swapoff -a",
            )
        }
        Ok(_) => finding.read(path, "none"),
        Err(error) => finding.read(path, &error).unknown("it is unknown", "swapon --show"),
    }
}

fn balancing(host: &Host) -> Finding {
    let path = "proc/sys/kernel/numa_balancing";
    let finding = Finding::ok("numa_balancing", "the kernel does not unmap pages to sample their use")
        .source(NOT_MEASURED);
    match host.root.number(path) {
        Ok(0) => finding.read(path, "0"),
        Ok(value) => finding.read(path, &value.to_string()).with_severity(
            Severity::Note,
            "the kernel periodically unmaps pages to sample their use, and each of them causes a page fault later",
            "sysctl -w kernel.numa_balancing=0",
        ),
        // A kernel without this file does not support NUMA balancing.
        Err(error) => finding.read(path, &error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::host::fake_root::found;

    fn severity(files: &[(&str, &str)], name: &str) -> Severity {
        found(check, files, name).severity
    }

    #[test]
    fn large_pages_that_are_made_at_once_cost() {
        let of = |enabled, defrag| {
            let directory = "sys/kernel/mm/transparent_hugepage";
            let files = [(format!("{directory}/enabled"), enabled), (format!("{directory}/defrag"), defrag)];
            severity(&files.each_ref().map(|(path, text)| (path.as_str(), *text)), "huge_pages")
        };
        assert_eq!(of("[always] madvise never", "[always] madvise never"), Severity::Cost);
        assert_eq!(of("[always] madvise never", "always [madvise] never"), Severity::Note);
        assert_eq!(of("always [madvise] never", "[always] madvise never"), Severity::Fine);
        assert_eq!(severity(&[], "huge_pages"), Severity::Unknown);
    }

    #[test]
    fn swap_and_balancing_may_cost() {
        let swaps = "Filename Type Size Used Priority\n";
        assert_eq!(severity(&[("proc/swaps", swaps)], "swap"), Severity::Fine);
        let used = format!("{swaps}/dev/sda2 partition 8 0 -2\n");
        assert_eq!(severity(&[("proc/swaps", &used)], "swap"), Severity::Note);
        assert_eq!(severity(&[("proc/sys/kernel/numa_balancing", "1")], "numa_balancing"), Severity::Note);
        assert_eq!(severity(&[], "numa_balancing"), Severity::Fine);
    }
}
