//! `incast`: many hosts send to one at the same time.

use anyhow::{Result, ensure};
use serde_json::json;

use super::args::IncastArgs;
use super::findings::{Findings, Section, Table};
use super::lab::Lab;
use super::orders::Rate;
use super::stand::{SCORE_HEAD, Score, Stand, score_cells};
use crate::args::Protocol;

/// The receiver is the first host; `--senders` beyond the number of the others are RPCs that the others have open at once.
pub fn run(lab: &mut Lab, args: &IncastArgs) -> Result<Findings> {
    let mut stand = Stand::new(lab, &args.common, &args.messages)?;
    let others = u32::from(stand.lab.spec().hosts - 1);
    stand.measure_unloaded()?;
    let mut scores: Vec<(String, u32, Score)> = Vec::new();
    for protocol in [Protocol::Homa, Protocol::Tcp] {
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
            scores.push((name, senders, score));
        }
    }
    let mut table = Table::new(&[""]);
    table.head.extend(SCORE_HEAD.map(str::to_owned));
    table.rows.extend(scores.iter().map(|(name, _, score)| score_cells(name.clone(), score)));
    let text = format!(
        "Hosts h2 and up keep RPCs open to h1; more senders than the {others} other hosts are several RPCs of each"
    );
    let section = Section { heading: "In numbers".to_owned(), text, table, charts: Vec::new() };
    let mut findings = Findings {
        title: "Many senders, one receiver".to_owned(),
        sections: vec![section],
        ..Findings::default()
    };
    let results: Vec<_> =
        scores.iter().map(|(_, senders, score)| json!({ "senders": senders, "score": score })).collect();
    let named: Vec<(String, &Score)> = scores.iter().map(|(name, _, score)| (name.clone(), score)).collect();
    stand.finish(&mut findings, "incast", &named, results.into());
    Ok(findings)
}
