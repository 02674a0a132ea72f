//! What the shared library says of itself to whoever links and loads it.

use std::env;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let part = |name: &str| env::var(format!("CARGO_PKG_VERSION_{name}")).unwrap_or_default();
    // The interface may change with what semantic versioning lets change it: the second number before 1.0, the first afterwards. The
    // Makefile makes the links of this name.
    let interface = match part("MAJOR").as_str() {
        "0" => format!("0.{}", part("MINOR")),
        major => major.to_owned(),
    };
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libhoma.so.{interface}");
    // It has threads, and a hook in fork(): it must not be unloaded under them.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
