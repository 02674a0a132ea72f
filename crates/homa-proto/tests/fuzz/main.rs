//! Runs the programs of the fuzz targets without a fuzzer: random programs from seeds, and inputs that once
//! found a defect.
//!
//! A failing test prints how to repeat it: `FUZZ_SEED=<seed>` runs one seed, `FUZZ_INPUT=<file>` runs one
//! input of the fuzzer.

mod programs;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rand::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;

use programs::{decode, endpoint};

/// Runs `program` on random bytes, from successive seeds for at most five seconds, or from `FUZZ_SEED`.
fn random(name: &str, seeds: u64, longest: u32, program: fn(&[u8])) {
    let chosen: Option<u64> =
        std::env::var("FUZZ_SEED").ok().map(|seed| seed.parse().expect("FUZZ_SEED is a number"));
    let seeds = chosen.map_or(0..seeds, |seed| seed..seed + 1);
    let begin = Instant::now();
    for seed in seeds {
        if begin.elapsed() > Duration::from_secs(5) {
            println!("stopped before seed {seed}: this machine is slow");
            break;
        }
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let mut bytes = vec![0; (random.next_u32() % longest) as usize];
        random.fill_bytes(&mut bytes);
        let outcome = std::panic::catch_unwind(|| program(&bytes));
        assert!(outcome.is_ok(), "replay: FUZZ_SEED={seed} cargo test -p homa-proto --test fuzz {name}");
    }
}

#[test]
fn random_bytes_decode_or_do_not() {
    random("random_bytes_decode_or_do_not", 20_000, 200, decode::run);
}

#[test]
fn random_programs_keep_every_promise() {
    random("random_programs_keep_every_promise", 600, 3_000, endpoint::run);
}

fn files(target: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz_regressions").join(target);
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("a readable folder").path()).collect();
    files.sort();
    assert!(!files.is_empty(), "{} has no inputs", folder.display());
    files
}

fn run_file(path: &Path, program: fn(&[u8])) {
    let bytes = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let outcome = std::panic::catch_unwind(|| program(&bytes));
    let target = path.display();
    assert!(outcome.is_ok(), "replay: FUZZ_INPUT={target} cargo test -p homa-proto --test fuzz one_input");
}

#[test]
fn stored_packets_decode_or_do_not() {
    files("decode").iter().for_each(|path| run_file(path, decode::run));
}

#[test]
fn stored_programs_keep_every_promise() {
    files("endpoint").iter().for_each(|path| run_file(path, endpoint::run));
}

/// The file's folder, `decode` or `endpoint`, selects the program.
#[test]
fn one_input() {
    let Some(path) = std::env::var_os("FUZZ_INPUT").map(PathBuf::from) else {
        homa_testkit::skip("FUZZ_INPUT names no file");
        return;
    };
    let is_packet = path.components().any(|part| part.as_os_str() == "decode");
    run_file(&path, if is_packet { decode::run } else { endpoint::run });
}
