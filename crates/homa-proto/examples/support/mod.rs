//! Counts the instructions of a part of this program with valgrind's callgrind, and compares the counts with
//! a committed baseline. The part is a function whose name contains `measured`.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, ExitCode};

/// Counts of callgrind.
#[derive(Clone, Copy, Debug)]
pub struct Counts {
    /// Instructions.
    pub instructions: f64,
    /// Misses of a simulated last-level cache of 8 MB.
    pub cold_lines: f64,
}

/// Runs this program under callgrind as `inner NAME`, which prints the number of measured units of work.
/// Returns the counts per unit; `None` if valgrind is not installed.
pub fn counted(name: &str) -> Option<Counts> {
    let file = std::env::temp_dir().join(format!("callgrind.out.{name}.{}", std::process::id()));
    let output = Command::new("valgrind")
        .args([
            "--tool=callgrind",
            "--cache-sim=yes",
            "--LL=8388608,16,64",
            "--quiet",
            "--collect-atstart=no",
        ])
        .args(["--toggle-collect=*measured*", &format!("--callgrind-out-file={}", file.display())])
        .arg(std::env::current_exe().ok()?)
        .args(["inner", name])
        .stderr(std::process::Stdio::null())
        .output()
        .ok()?;
    let text = std::fs::read_to_string(&file).unwrap_or_default();
    let _ = std::fs::remove_file(&file);
    let units: f64 = String::from_utf8(output.stdout).ok()?.trim().parse().ok()?;
    let events: Vec<&str> = text.lines().find_map(|line| line.strip_prefix("events: "))?.split(' ').collect();
    let totals =
        text.lines().find_map(|line| line.strip_prefix("totals: ").or(line.strip_prefix("summary: ")))?;
    let totals: Vec<f64> = totals.split(' ').filter_map(|total| total.parse().ok()).collect();
    let of =
        |name: &str| events.iter().position(|event| *event == name).and_then(|at| totals.get(at)).copied();
    // Trailing zeros are omitted.
    let misses = of("DLmr").unwrap_or(0.0) + of("DLmw").unwrap_or(0.0);
    Some(Counts { instructions: of("Ir")? / units, cold_lines: misses / units })
}

/// Instruction counts by name, as in the committed file: one name and number per line, and the compiler that
/// was used.
struct Baseline {
    compiler: String,
    instructions: BTreeMap<String, f64>,
}

/// Permitted difference from the baseline if the same compiler was used.
const SAME_COMPILER: f64 = 0.02;
/// Permitted difference if another compiler was used, which generates different code.
const OTHER_COMPILER: f64 = 0.15;

fn compiler() -> String {
    let output = Command::new("rustc").arg("--version").output();
    output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default()
}

fn read(path: &Path) -> Result<Baseline, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let mut baseline = Baseline { compiler: String::new(), instructions: BTreeMap::new() };
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        match line.split_once(' ') {
            Some(("compiler", compiler)) => compiler.clone_into(&mut baseline.compiler),
            Some((name, number)) => {
                let number = number.trim().parse().map_err(|_| format!("{}: {line}", path.display()))?;
                baseline.instructions.insert(name.to_owned(), number);
            }
            None => return Err(format!("{}: not a name and a number: {line}", path.display())),
        }
    }
    Ok(baseline)
}

/// Compares counts with the baseline in `path`, or writes them there. Prints the result. Returns `Err` if a
/// count is out of tolerance.
fn check(path: &Path, write: bool, counts: &[(&str, f64)]) -> Result<(), String> {
    if write {
        let mut baseline =
            read(path).unwrap_or(Baseline { compiler: String::new(), instructions: BTreeMap::new() });
        baseline.compiler = compiler();
        baseline.instructions.extend(counts.iter().map(|(name, count)| ((*name).to_owned(), *count)));
        let mut text = String::from("# Instructions, by callgrind: see CONTRIBUTING.md.\n");
        text += &format!("compiler {}\n", baseline.compiler);
        baseline.instructions.iter().for_each(|(name, count)| text += &format!("{name} {count:.1}\n"));
        return std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()));
    }
    let baseline = read(path)?;
    let same = baseline.compiler == compiler();
    let tolerance = if same { SAME_COMPILER } else { OTHER_COMPILER };
    if !same {
        println!("the baseline is of {}, this is {}: {tolerance} may differ", baseline.compiler, compiler());
    }
    let mut off = Vec::new();
    for &(name, count) in counts {
        let Some(&before) = baseline.instructions.get(name) else {
            off.push(format!("{name} is not in {}", path.display()));
            continue;
        };
        let change = count / before - 1.0;
        println!("{name}: {count:.1} instructions, baseline {before:.1}, {:+.2} %", change * 100.0);
        if change.abs() > tolerance {
            off.push(format!("{name} takes {:+.1} % instructions", change * 100.0));
        }
    }
    if off.is_empty() { Ok(()) } else { Err(off.join("; ")) }
}

/// Runs such a program, as its `main` function. Without arguments, it runs `table`; with `inner NAME`, it
/// runs the counted part, for [`counted`]. `--check FILE` compares and `--write FILE` writes the instruction
/// counts of `cases`, each given by its name in the file and the name of its `inner`.
pub fn run(
    args: &[String],
    table: impl FnOnce(),
    inner: impl FnOnce(&str) -> u64,
    cases: &[(&'static str, &str)],
) -> ExitCode {
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let compare = |path: &str, write| {
        let count = |&(name, inner): &(&'static str, &str)| {
            let counts = counted(inner).ok_or("instructions are counted by valgrind: install it")?;
            Ok::<_, String>((name, counts.instructions))
        };
        let counts = cases.iter().map(count).collect::<Result<Vec<_>, _>>()?;
        check(Path::new(path), write, &counts)
    };
    let result = match args.as_slice() {
        [] => {
            table();
            Ok(())
        }
        ["inner", name] => {
            println!("{}", inner(name));
            Ok(())
        }
        ["--check", path] => compare(path, false),
        ["--write", path] => compare(path, true),
        _ => Err("the arguments are none, --check FILE or --write FILE".to_owned()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
