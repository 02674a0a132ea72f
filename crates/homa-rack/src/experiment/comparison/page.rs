//! `report.html` of a comparison: a self-contained page.

use std::fmt::Write;

use homa_report::chart::{Chart, Curve, Point, Scale, escape};
use homa_report::findings::Section;
use homa_report::page::{FOOT, head};

use super::answer::Answer;
use crate::experiment::vs_tcp::CellResults;

/// Number of ticks of a time axis.
const TIME_TICKS: u32 = 6;

impl Answer<'_> {
    /// Renders the page: answer, slowdown by size, queue over time, tables, conditions, and the command.
    pub fn page(&self) -> String {
        let names: Vec<&str> = self.measured.runs.iter().map(|ran| ran.contender.title.as_str()).collect();
        let mut out = head(&format!("{} on the same network", names.join(" and ")));
        out.push_str("<div class=\"answer\">\n");
        let is_valid = self.invalid().is_empty();
        for (index, line) in self.lines().iter().enumerate() {
            let class = if index == 0 && !is_valid { " class=\"warn\"" } else { "" };
            let _ = writeln!(out, "<p{class}>{}</p>", escape(line));
        }
        out.push_str("</div>\n");
        for warning in self.warnings() {
            let _ = writeln!(out, "<p class=\"warn\">{}</p>", escape(warning));
        }
        let mut sections = self.sections();
        for section in &sections {
            charts(&mut out, section);
        }
        self.queue(&mut out);
        sections.push(self.conditions());
        for section in &sections {
            let _ = writeln!(out, "<h2>{}</h2>\n<p>{}</p>", escape(&section.heading), escape(&section.text));
            section.table.html(&mut out);
        }
        let _ = writeln!(out, "<h2>Run it again</h2>\n<p><code>{}</code></p>", escape(&self.command()));
        out.push_str(FOOT);
        out
    }

    /// Returns the command that repeats the measurement.
    fn command(&self) -> String {
        let plan = &self.measured.plan;
        let (spec, options) = (plan.spec(), plan.options());
        let common = &options.common;
        let names: Vec<&str> = common.cc.iter().map(|cc| cc.name()).collect();
        let one_way = if options.messages.one_way { " --one-way" } else { "" };
        format!(
            "homa bench --workload {} --load {:.2} --hosts {} --rate {}mbit --connections {} --cc {} --seed {}{one_way}",
            options.messages.workload,
            plan.load,
            spec.hosts,
            spec.rate_mbps(),
            common.connections,
            names.join(","),
            common.seed,
        )
    }

    /// Draws the queue of one switch port in the first repetition, with one curve per contender. All
    /// contenders carried the same messages.
    fn queue(&self, out: &mut String) {
        let chart = queue_chart(&self.measured);
        if chart.curves.iter().all(|curve| curve.points.is_empty()) {
            return;
        }
        let _ = writeln!(
            out,
            "<h2>The queue at one switch port</h2>\n<p>Bytes queued at the port to host h1 during the first repetition, as the time that \
             its link takes to send them. An arriving packet waits for this time, unless it has a higher priority.</p>\n<figure>\n{}</figure>",
            chart.figure()
        );
    }
}

fn charts(out: &mut String, section: &Section) {
    for chart in &section.charts {
        let _ = writeln!(out, "<h2>{}</h2>\n<figure>\n{}</figure>", escape(&chart.y_title), chart.figure());
    }
}

fn queue_chart(measured: &CellResults<'_>) -> Chart {
    let CellResults { plan, runs, repetitions, .. } = measured;
    let (rate_bps, span_ms) = (plan.spec().rate_bps as f64, plan.measured.as_secs_f64() * 1e3);
    let curve = |(ran, repetition): (&_, &_)| {
        let (ran, repetition): (&super::super::vs_tcp::ContenderRuns, &super::super::vs_tcp::Repetition) =
            (ran, repetition);
        let point = |sample: &crate::experiment::queue::QueueSample| Point {
            x: (sample.at_ms / span_ms).min(1.0),
            y: sample.bytes * 8e3 / rate_bps,
            title: String::new(),
        };
        Curve {
            label: ran.contender.title.clone(),
            class: ran.contender.class.to_owned(),
            is_reference: false,
            points: repetition.queue.iter().map(point).collect(),
        }
    };
    let tick = |index: u32| {
        let share = f64::from(index) / f64::from(TIME_TICKS);
        (share, format!("{:.1}", share * span_ms / 1e3))
    };
    Chart {
        x_title: "Measured time, seconds".to_owned(),
        y_title: "Queue, milliseconds of the link".to_owned(),
        scale: Scale::Linear,
        x_ticks: (0..=TIME_TICKS).map(tick).collect(),
        curves: runs.iter().zip(repetitions).map(curve).collect(),
    }
}
