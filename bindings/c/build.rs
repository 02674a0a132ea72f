//! Sets the soname and the linker options of the shared library.

use std::env;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let part = |name: &str| env::var(format!("CARGO_PKG_VERSION_{name}")).unwrap_or_default();
    // The soname changes whenever semantic versioning permits an interface change: with the second number
    // before 1.0, with the first afterwards. The Makefile creates the links of this name.
    let interface = match part("MAJOR").as_str() {
        "0" => format!("0.{}", part("MINOR")),
        major => major.to_owned(),
    };
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libhoma.so.{interface}");
    // The library has threads and a hook in fork(): it must never be unloaded.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
