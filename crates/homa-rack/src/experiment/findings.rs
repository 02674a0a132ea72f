//! Additional findings of experiments on a rack: warnings about busy processors, and published results.

use homa_report::findings::Findings;

use super::published;
use super::testbed::Machine;

/// Share of busy processors above which the processors limit a rack.
const MOSTLY_BUSY: f64 = 0.9;

/// Mean wait for a processor that causes a warning, as a multiple of the transmission time of a full packet
/// on a link.
const LONG_WAIT_PACKETS: f64 = 1.0;

/// Warns if the processors rather than the links limited the load `name`. `packet_us` is the transmission
/// time of the longest packet on a link, in microseconds.
pub fn processor_warnings(findings: &mut Findings, name: &str, machine: &Machine, packet_us: f64) {
    let Machine { cpus, hosts_busy, switch_busy, hosts_waited_us, .. } = machine;
    // Other programs are taken into account through the time that the rack's threads wait for them.
    let busy = hosts_busy + switch_busy;
    if busy > MOSTLY_BUSY * *cpus as f64 {
        findings.warnings.push(format!(
            "{name}: the rack kept {busy:.2} of {cpus} processors busy: the result shows their limits and not the network's; \
             use a lower --rate or fewer --hosts"
        ));
    }
    if *hosts_waited_us > LONG_WAIT_PACKETS * packet_us {
        findings.warnings.push(format!(
            "{name}: a runnable thread waited {hosts_waited_us:.0} us for a processor on average, longer than a packet \
             takes on its link ({packet_us:.0} us): use a lower --rate or fewer --hosts"
        ));
    }
}

/// Adds the published results about a subject to the notes and to the JSON.
pub fn cite(findings: &mut Findings, subject: &str) {
    findings.notes.extend(published::lines(subject));
    findings.json["published"] = published::json(subject);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_machine_and_a_long_wait_are_said() {
        let mut findings = Findings::default();
        // Other programs keep both processors busy.
        let machine = Machine {
            cpus: 2,
            cores_busy: 2.0,
            hosts_busy: 1.3,
            switch_busy: 0.4,
            hosts_waited_us: 50.0,
            ..Machine::default()
        };
        processor_warnings(&mut findings, "Homa", &machine, 120.0);
        assert!(findings.warnings.is_empty(), "{:?}", findings.warnings);
        processor_warnings(&mut findings, "Homa", &Machine { hosts_busy: 1.5, ..machine.clone() }, 120.0);
        processor_warnings(&mut findings, "TCP", &machine, 12.0);
        assert_eq!(findings.warnings.len(), 2);
        assert!(findings.text().contains("WARNING: TCP: a runnable thread"), "{}", findings.text());
    }
}
