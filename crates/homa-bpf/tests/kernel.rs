//! Tests maps and programs in the kernel (as root).

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use homa_bpf::assembler::Register::{R0, R9};
use homa_bpf::assembler::{Assembler, Width};
use homa_bpf::map::{self, MapKind};
use homa_bpf::program::{self, AttachPoint};
use homa_bpf::{Name, is_no_permission};

const NAME: Name = Name::new("homa_bpf_test");

/// Returns the value, or `None` after printing why the test is skipped.
fn allowed<T>(result: io::Result<T>) -> Option<T> {
    match result {
        Err(error) if is_no_permission(&error) => {
            homa_testkit::skip(format_args!("bpf(2): {error}"));
            None
        }
        result => Some(result.unwrap()),
    }
}

#[test]
fn a_program_reads_what_a_process_has_put_into_its_map() {
    let Some(map) = allowed(map::create(MapKind::Array, NAME, 8, 1)) else { return };
    let mut program = Assembler::default();
    program.load_value_address(R9, map.as_raw_fd());
    program.load(Width::Eight, R0, R9, 0);
    program.exit();
    let loaded = program::load(NAME, &program.finish(), AttachPoint::Device);
    let Some(loaded) = allowed(loaded) else { return };
    for number in [1_u64, 77] {
        map::put(map.as_fd(), 0, &number.to_ne_bytes()).unwrap();
        assert_eq!(map::get(map.as_fd(), 0).unwrap(), number.to_ne_bytes());
        assert_eq!(program::test_run(loaded.as_fd(), &[0; 64]).unwrap(), number as u32);
    }
    let info = program::info(loaded.as_fd()).unwrap();
    assert_eq!((info.name, info.maps.len()), (NAME, 1));
    assert_eq!(map::name(map.as_fd()).unwrap(), NAME);
}

#[test]
fn values_of_another_length_and_descriptors_of_no_map_are_refused() {
    let Some(map) = allowed(map::create(MapKind::Array, NAME, 8, 1)) else { return };
    let refused = |result: io::Result<()>| result.unwrap_err().kind() == io::ErrorKind::InvalidInput;
    assert!(refused(map::put(map.as_fd(), 0, &[0; 7])));
    assert!(refused(map::put(map.as_fd(), 0, &[0; 9])));
    assert_eq!(map::get(map.as_fd(), 1).unwrap_err().kind(), io::ErrorKind::NotFound);
    let file = std::fs::File::open("/dev/null").unwrap();
    assert!(map::get(file.as_fd(), 0).is_err() && map::name(file.as_fd()).is_err());
}

#[test]
fn a_program_that_the_verifier_refuses_is_an_error_with_its_reason() {
    let mut program = Assembler::default();
    // The verifier rejects this program because R0 was never written.
    program.exit();
    match program::load(NAME, &program.finish(), AttachPoint::Device) {
        Err(error) if is_no_permission(&error) => {
            homa_testkit::skip(format_args!("bpf(2): {error}"));
        }
        result => {
            let error = result.unwrap_err().to_string();
            assert!(error.contains("the verifier says: ") && error.contains("R0"), "{error}");
        }
    }
}
