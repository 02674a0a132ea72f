//! Checks that `make install` installs all files where a distributor, pkg-config, CMake and the loader look
//! for them.

mod common;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use common::{Server, VALGRIND, are_there, built, command, directory, make, prefix, root, run};
use homa_testkit::namespace::{V4, V6, pair};

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Returns the files and links below a directory, sorted.
fn files(below: &Path) -> Vec<String> {
    fn walk(directory: &Path, below: &Path, found: &mut Vec<String>) {
        for entry in fs::read_dir(directory).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.is_symlink() {
                walk(&path, below, found);
            } else {
                found.push(path.strip_prefix(below).unwrap().to_string_lossy().into_owned());
            }
        }
    }
    let mut found = Vec::new();
    walk(below, below, &mut found);
    found.sort();
    found
}

/// Returns the soname under which programs load the library.
fn soname() -> String {
    let numbers: Vec<&str> = VERSION.split('.').collect();
    let interface = if numbers[0] == "0" { numbers[..2].join(".") } else { numbers[0].to_owned() };
    format!("libhoma.so.{interface}")
}

/// The libraries are built in the directory from which `make install` takes them, without the rlib, which
/// would prevent link-time optimization. `echo` stands in for cargo: another build would take most of the
/// time of these tests.
#[test]
fn the_libraries_are_built_with_link_time_optimization() {
    if !are_there(&["make"]) {
        return;
    }
    let manifest = root().join("Cargo.toml");
    let expected = format!(
        "rustc --manifest-path {} --package homa-c --lib --crate-type cdylib,staticlib --profile dist \
         --target-dir /built --locked\n",
        manifest.display()
    );
    let variables: [(&str, &OsStr); 4] = [
        ("CARGO", "@echo".as_ref()),
        ("PROFILE", "dist".as_ref()),
        ("TARGET_DIR", "/built".as_ref()),
        ("CARGOFLAGS", "--locked".as_ref()),
    ];
    assert_eq!(make("build", &variables), expected);
    // If the libraries are missing, they are built.
    let said = make("/built/dist/libhoma_c.so", &variables);
    assert!(said.ends_with(&expected), "{said}");
}

#[test]
fn a_package_is_staged_and_uninstalled() {
    if !are_there(&["make"]) {
        return;
    }
    let (built, staging) = (built(), directory("staging"));
    let _ = fs::remove_dir_all(&staging);
    let variables: [(&str, &OsStr); 4] = [
        ("BUILT", built.as_ref()),
        ("DESTDIR", staging.as_ref()),
        ("PREFIX", "/usr".as_ref()),
        ("LIBDIR", "/usr/lib/any-linux-gnu".as_ref()),
    ];
    make("install", &variables);
    let lib = "usr/lib/any-linux-gnu";
    let (soname, file) = (soname(), format!("libhoma.so.{VERSION}"));
    let mut expected = vec![
        "usr/include/homa.h".to_owned(),
        format!("{lib}/libhoma.a"),
        format!("{lib}/libhoma.so"),
        format!("{lib}/{soname}"),
        format!("{lib}/{file}"),
        format!("{lib}/pkgconfig/homa.pc"),
    ];
    expected.sort();
    assert_eq!(files(&staging), expected);
    let link = |name: &str| fs::read_link(staging.join(lib).join(name)).unwrap();
    assert_eq!([link("libhoma.so"), link(&soname)], [PathBuf::from(&soname), PathBuf::from(&file)]);
    let words = fs::read_to_string(staging.join(lib).join("pkgconfig/homa.pc")).unwrap();
    for line in
        ["prefix=/usr", "libdir=${prefix}/lib/any-linux-gnu", "includedir=${prefix}/include", "-pthread"]
    {
        assert!(words.contains(line), "{line} is not in {words}");
    }
    assert!(!words.contains("staging") && !words.contains('@'), "{words}");
    make("uninstall", &variables);
    assert_eq!(files(&staging), Vec::<String>::new());
}

fn pkg_config(arguments: &[&str]) -> Vec<String> {
    let mut pkg_config = Command::new("pkg-config");
    let answer = run(pkg_config.args(arguments).env("PKG_CONFIG_PATH", prefix().join("lib/pkgconfig")));
    answer.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn pkg_config_says_how_to_link_either_library() {
    if !are_there(&["make", "cc", "pkg-config"]) {
        return;
    }
    assert_eq!(pkg_config(&["--modversion", "homa"]), [VERSION]);
    let source = root().join("tests/c/arguments.c");
    let shared = directory("shared");
    run(Command::new("cc")
        .arg(&source)
        .args(pkg_config(&["--cflags", "--libs", "homa"]))
        .arg("-o")
        .arg(&shared));
    run(&mut command(&[], &shared));
    // A program that is linked with the static library runs where the loader finds no shared library.
    let own = directory("static");
    let _ = fs::remove_file(prefix().join("lib/alone/libhoma.a"));
    fs::create_dir_all(prefix().join("lib/alone")).unwrap();
    fs::hard_link(prefix().join("lib/libhoma.a"), prefix().join("lib/alone/libhoma.a")).unwrap();
    let mut link = Command::new("cc");
    link.arg(&source).arg("-L").arg(prefix().join("lib/alone"));
    run(link.args(pkg_config(&["--static", "--cflags", "--libs", "homa"])).arg("-o").arg(&own));
    run(&mut Command::new(&own));
    assert!(
        run(Command::new("ldd").arg(&shared).env("LD_LIBRARY_PATH", prefix().join("lib")))
            .contains(&soname())
    );
    assert!(!run(Command::new("ldd").arg(&own)).contains("libhoma"));
}

/// Builds the examples with CMake and returns the build directory, or `None` if a tool is missing.
fn examples(test: &str) -> Option<PathBuf> {
    if !are_there(&["make", "cc", "cmake", "pkg-config"]) {
        return None;
    }
    let build = directory(test);
    let _ = fs::remove_dir_all(&build);
    let mut cmake = Command::new("cmake");
    cmake.arg("-S").arg(root().join("examples")).arg("-B").arg(&build);
    run(cmake.arg("-DCMAKE_BUILD_TYPE=Debug").env("PKG_CONFIG_PATH", prefix().join("lib/pkgconfig")));
    run(Command::new("cmake").arg("--build").arg(&build));
    Some(build)
}

/// Returns a command that runs an example, under valgrind if possible. Its calls fail only after twelve
/// seconds of silence: under valgrind on a busy machine, a server may be silent for more than half a second.
fn example(program: &Path) -> Command {
    let before: &[&str] = if are_there(&VALGRIND[..1]) { &VALGRIND } else { &[] };
    let mut example = command(before, program);
    example.args(["--max-resends", "255"]);
    // CMake has written the library's path into the example.
    example.env_remove("LD_LIBRARY_PATH");
    example
}

/// The compiler commands in the guide work in the root of the repository.
#[test]
fn the_examples_build_by_the_lines_of_the_guide() {
    if !are_there(&["make", "cc", "pkg-config"]) {
        return;
    }
    let repository = root().parent().and_then(Path::parent).unwrap();
    let guide = fs::read_to_string(repository.join("docs/guide/c.md")).unwrap();
    let built = directory("guide");
    fs::create_dir_all(&built).unwrap();
    for example in ["client", "server"] {
        let source = format!("bindings/c/examples/{example}.c");
        let line = guide.lines().find(|line| line.starts_with("cc ") && line.contains(&source));
        let line = line.unwrap_or_else(|| panic!("the guide does not say how to build {source}"));
        let to = built.join(example);
        let line = line.replace(&format!("-o {example}"), &format!("-o {}", to.display()));
        let mut shell = Command::new("sh");
        shell.arg("-ec").arg(line).current_dir(repository);
        run(shell.env("PKG_CONFIG_PATH", prefix().join("lib/pkgconfig")));
        assert!(to.exists());
    }
}

/// Interrupts a client, which must cancel its calls in flight and print a summary.
fn interrupt(client: &Path, server: &str) {
    let calls = ["--calls", "10000000", "--in-flight", "7", "--deadline-ms", "1000000"];
    let client = Server::start(example(client).arg(server).args(calls));
    assert!(client.address.starts_with("calling "), "{}", client.address);
    client.signal("INT");
    let said = client.end();
    let numbers: Vec<u64> = said.split([' ', ';']).filter_map(|word| word.parse().ok()).collect();
    let [calls, 100, answered, 7, ..] = numbers[..] else { panic!("{said}") };
    assert_eq!(calls, answered + 7, "{said}");
}

#[test]
fn the_examples_run_and_end_well_at_a_signal() {
    let Some(build) = examples("examples") else { return };
    let (server, client) = (build.join("server"), build.join("client"));
    for end in ["INT", "TERM"] {
        let server = Server::start(example(&server).args([
            "--bind",
            "127.0.0.1:0",
            "--threads",
            "2",
            "--poll-us",
            "0",
        ]));
        let said = run(example(&client)
            .args([&server.address, "--calls", "200", "--size", "20000"])
            // A long deadline, since the machine may be busy and valgrind is slow.
            .args(["--deadline-ms", "60000"]));
        assert!(said.contains("200 calls of 20000 bytes: 200 answered, 0 failed; median "), "{said}");
        server.signal(end);
        let counted = server.end();
        // The client makes one additional call before the counted ones.
        assert!(counted.lines().any(|line| line == "requests_delivered 201"), "{counted}");
    }
    let local = ["--bind", "127.0.0.1:0", "--poll-us", "0"];
    let running = Server::start(example(&server).args(local));
    interrupt(&client, &running.address);
    running.signal("TERM");
    running.end();

    let refused = |arguments: &[&str], words: &str| {
        let output = command(&[], &client).args(arguments).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{errors}");
        assert!(errors.contains(words) && errors.lines().count() == 1, "{errors}");
    };
    refused(&[], "client SERVER");
    refused(&["nowhere"], "not an IP address");
    refused(&["127.0.0.1", "--calls", "none"], "write a whole number, 1 to 10000000");
    refused(&["127.0.0.1", "--speed", "7"], "there is no option \"speed\"");
    refused(&["127.0.0.1", "--calls"], "it needs a value");
    let help = run(command(&[], &client).arg("--help"));
    assert!(
        help.contains("--in-flight") && help.contains("--driver") && help.contains("--trace-records"),
        "{help}"
    );
}

#[test]
fn the_examples_call_each_other_over_every_driver() {
    let Some(namespaces) = pair(1_500) else { return };
    let Some(build) = examples("drivers") else { return };
    let (server, client) = (build.join("server"), build.join("client"));
    for (driver, ips) in
        [("udp", V4), ("raw", V4), ("raw", V6), ("packet", V4), ("packet", V6), ("xdp", V4), ("xdp", V6)]
    {
        let at = |program: &Path, ip: &str| {
            let mut example = command(&[], program);
            let ip = if ip.contains(':') { format!("[{ip}]") } else { ip.to_owned() };
            example.args(["--driver", driver, "--bind", &format!("{ip}:0"), "--segment-dir"]);
            example.arg(env!("CARGO_TARGET_TMPDIR"));
            example
        };
        let mut serve = at(&server, ips[1]);
        let running = namespaces[1].run(move || Server::start(&mut serve));
        let mut call = at(&client, ips[0]);
        call.args([&running.address, "--calls", "50", "--size", "20000", "--deadline-ms", "60000"]);
        let said = namespaces[0].run(move || run(&mut call));
        assert!(said.contains("50 calls of 20000 bytes: 50 answered, 0 failed"), "{driver} {ips:?}: {said}");
        running.signal("TERM");
        let counted = running.end();
        let counted = |name: &str| counted.lines().any(|line| line.starts_with(name));
        assert!(counted("requests_delivered 51"), "{driver} {ips:?}");
    }
}
