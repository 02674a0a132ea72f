//! Tests of distributions from a user's CSV text.

use homa_workload::dist::MAX_CSV_POINTS;
use homa_workload::{Workload, WorkloadError};

/// Returns the line and the problem because of which the text is rejected.
fn refusal(text: &str) -> (usize, String) {
    match Workload::from_csv("mine", text) {
        Err(WorkloadError::Csv { line, problem }) => (line, problem),
        other => panic!("{text:?} gave {other:?}"),
    }
}

#[test]
fn points_are_steps() {
    let text = "# my service\nsize,cumulative_fraction\n\n 10 , 0.25\r\n200,0.75\n3000,1\n";
    let mine = Workload::from_csv("mine", text).unwrap();
    assert_eq!(mine.name(), "mine");
    assert_eq!(mine.mean_bytes(), 0.25 * 10.0 + 0.5 * 200.0 + 0.25 * 3000.0);
    let expected = [(9, 0.0), (10, 0.25), (199, 0.25), (200, 0.75), (2999, 0.75), (3000, 1.0)];
    assert!(expected.iter().all(|&(size, fraction)| mine.cdf(size) == fraction));
    assert!(mine.sampler(3).take(1000).all(|bytes| [10, 200, 3000].contains(&bytes)));
}

#[test]
fn a_header_is_optional_and_so_is_the_final_newline() {
    let bare = Workload::from_csv("mine", "10,0.5\n20,1").unwrap();
    let dressed = Workload::from_csv("mine", "\u{feff}size,cumulative_fraction\n10,0.5\n20,1.0\n").unwrap();
    assert_eq!(bare, dressed);
}

#[test]
fn points_without_messages_do_not_count() {
    let mine = Workload::from_csv("mine", "5,0\n10,0.5\n15,0.5\n20,1\n30,1").unwrap();
    assert_eq!((mine.min_bytes(), mine.max_bytes(), mine.mean_bytes()), (10, 20, 15.0));
}

#[test]
fn an_end_rounded_to_six_digits_counts_as_one() {
    let mine = Workload::from_csv("mine", "10,0.5\n20,0.999999").unwrap();
    assert_eq!(mine.cdf(20), 1.0);
    assert_eq!(mine.mean_bytes(), 15.0);
}

#[test]
fn each_broken_rule_names_its_line() {
    let cases = [
        ("10,0.5\n20,0.9\n", 2, "it must be 1"),
        ("10,0.5\n10,1\n", 2, "sizes must increase"),
        ("20,0.5\n10,1\n", 2, "sizes must increase"),
        ("# x\n10,0.5\n20,0.4\n30,1", 3, "must not decrease"),
        ("0,0.5\n20,1\n", 1, "from 1 to 4294967295"),
        ("10.5,0.5\n20,1\n", 1, "from 1 to 4294967295"),
        ("4294967296,1\n", 1, "from 1 to 4294967295"),
        ("-1,1\n", 1, "from 1 to 4294967295"),
        ("10,1.5\n", 1, "from 0 to 1"),
        ("10,-0.5\n", 1, "from 0 to 1"),
        ("10,NaN\n", 1, "from 0 to 1"),
        ("10,half\n", 1, "from 0 to 1"),
        ("10;1\n", 1, "size,cumulative_fraction"),
        ("10,0.5\nsize,cumulative_fraction\n", 2, "from 1 to 4294967295"),
        ("10,0.5,7\n", 1, "from 0 to 1"),
    ];
    for (text, line, remedy) in cases {
        let (at, problem) = refusal(text);
        assert_eq!(at, line, "{text:?}: {problem}");
        assert!(problem.contains(remedy), "{text:?}: {problem}");
    }
}

#[test]
fn text_without_points_is_refused() {
    for text in ["", "\n\n", "# nothing\nsize,cumulative_fraction\n"] {
        assert_eq!(Workload::from_csv("mine", text).unwrap_err(), WorkloadError::CsvEmpty);
    }
}

#[test]
fn the_number_of_points_is_bounded() {
    let mut text: String = (1..MAX_CSV_POINTS).map(|size| format!("{size},0.5\n")).collect();
    text.push_str("200000,1\n");
    assert!(Workload::from_csv("mine", &text).is_ok());
    text.push_str("200001,1\n");
    assert_eq!(refusal(&text).0, MAX_CSV_POINTS + 1);
}
