//! `incast`: many hosts send to one at the same time.

use anyhow::{Result, ensure};
use serde_json::json;

use super::args::IncastArgs;
use super::findings::Findings;
use super::lab::Lab;
use super::orders::Rate;
use super::stand::Stand;
use super::sweep::{Named, finish};
use super::vs_tcp::PROTOCOLS;

/// The receiver is the first host; `--senders` beyond the number of the others are RPCs that the others have open at once.
pub fn run(lab: &mut Lab, args: &IncastArgs) -> Result<Findings> {
    let mut stand = Stand::new(lab, &args.common, &args.messages)?;
    let others = u32::from(stand.lab.spec().hosts - 1);
    stand.measure_unloaded()?;
    let mut scores: Vec<Named> = Vec::new();
    for protocol in PROTOCOLS {
        let mut crew = stand.crew(protocol, |_| ())?;
        crew.open(stand.lab, |number| if number == 1 { Vec::new() } else { vec![1] })?;
        for &senders in &args.senders {
            ensure!(senders > 0, "--senders are at least 1");
            let hosts = senders.min(others);
            let outstanding = senders.div_ceil(hosts);
            let sends = |number: u16| (2..=hosts + 1).contains(&u32::from(number));
            let load = stand.on(Rate::Closed { outstanding }, 1, sends);
            let name = format!("{}: {senders} senders", protocol.title());
            let score = stand.run(&mut crew, &load, &name)?.0;
            scores.push((name, senders.into(), score));
        }
    }
    let results: Vec<_> = scores
        .iter()
        .map(|(_, senders, score)| json!({ "senders": *senders as u32, "score": score }))
        .collect();
    let title = "Many senders, one receiver";
    let mut findings = finish(&stand, "incast", title, &scores, Vec::new(), results.into());
    findings.sections[0].text = format!(
        "Hosts h2 and up keep RPCs open to h1; more senders than the {others} other hosts are several RPCs of each"
    );
    Ok(findings)
}
