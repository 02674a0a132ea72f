//! Checks that a program is dynamically linked with libc, which is required for preloading a library.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::find_program;

/// Number of bytes of a script's first line that the kernel reads.
const SCRIPT_LINE: u64 = 256;

/// Lengths of a 64-bit ELF header, and of an entry in the program header table.
const HEADER: usize = 64;
const ENTRY: usize = 56;

/// Maximum number of program headers to read; a typical program has about a dozen.
const MOST_ENTRIES: usize = 256;

/// Maximum number of bytes of notes to read.
const MOST_NOTES: u64 = 64 << 10;

/// Types of program headers: the program's loader, and notes.
const PT_INTERP: u32 = 3;
const PT_NOTE: u32 = 4;

/// The owner name of notes written by Go's linker.
const GO: &[u8] = b"Go\0\0";

/// The set-user-ID and set-group-ID bits.
const SET_ID: u32 = 0o6000;

/// Returns an error text if the library cannot be preloaded into the program.
pub fn check(path: &Path) -> Result<()> {
    let mut path = path.to_owned();
    // For a script, check its interpreter; for `env`, check the interpreter that `env` would find.
    for _ in 0..3 {
        match interpreter(&path)? {
            Some(next) => path = next,
            None => return check_binary(&path),
        }
    }
    Ok(())
}

fn open(path: &Path) -> Result<File> {
    File::open(path).with_context(|| format!("cannot read `{}`", path.display()))
}

/// Returns the interpreter of a script.
fn interpreter(path: &Path) -> Result<Option<PathBuf>> {
    let mut line = Vec::new();
    open(path)?
        .take(SCRIPT_LINE)
        .read_to_end(&mut line)
        .with_context(|| format!("cannot read `{}`", path.display()))?;
    let Some(rest) = line.strip_prefix(b"#!") else { return Ok(None) };
    let first = rest.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let text = String::from_utf8_lossy(first).into_owned();
    let mut words = text.split_whitespace();
    let Some(program) = words.next() else { return Ok(None) };
    let named = words.find(|word| !word.starts_with('-') && !word.contains('='));
    match named {
        Some(name) if program.ends_with("/env") => find_program(name).map(Some),
        _ => Ok(Some(PathBuf::from(program))),
    }
}

fn check_binary(path: &Path) -> Result<()> {
    let shown = path.display();
    let mut file = open(path)?;
    if file.metadata().is_ok_and(|data| data.mode() & SET_ID != 0) {
        bail!(
            "`{shown}` is set-user-ID, and the system preloads no library into such programs: run a copy without that bit"
        );
    }
    let mut header = [0; HEADER];
    if file.read_exact(&mut header).is_err() || !header.starts_with(b"\x7fELF") {
        // Leave it to the kernel to report the error.
        return Ok(());
    }
    let own = if cfg!(target_pointer_width = "64") { 2 } else { 1 };
    if header[4] != own {
        bail!("`{shown}` is not a 64-bit program as the library is: build both for the same machine");
    }
    let found =
        read_entries(&mut file, &header).with_context(|| format!("`{shown}` is not a complete program"))?;
    if found.go {
        bail!(
            "`{shown}` is written in Go, whose programs call the system without libc: it needs the kernel's Homa"
        );
    }
    let Some(loader) = found.loader else {
        bail!(
            "`{shown}` is linked statically and makes system calls by itself: link it dynamically, or use the kernel's Homa"
        );
    };
    if loader.contains("musl") {
        bail!("`{shown}` is for musl, and the library for glibc: build both for the same libc");
    }
    Ok(())
}

#[derive(Default)]
struct ElfInfo {
    loader: Option<String>,
    go: bool,
}

fn number(bytes: &[u8], at: usize, length: usize) -> u64 {
    let bytes = bytes.get(at..at + length).unwrap_or_default();
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

fn read_entries(file: &mut File, header: &[u8]) -> Result<ElfInfo> {
    let (table, count) = (number(header, 32, 8), number(header, 56, 2) as usize);
    let mut entries = vec![0; count.min(MOST_ENTRIES) * ENTRY];
    file.seek(SeekFrom::Start(table))?;
    file.read_exact(&mut entries)?;
    let mut found = ElfInfo::default();
    for entry in entries.chunks_exact(ENTRY) {
        let (kind, offset, length) = (number(entry, 0, 4) as u32, number(entry, 8, 8), number(entry, 32, 8));
        if kind != PT_INTERP && kind != PT_NOTE {
            continue;
        }
        let mut content = Vec::new();
        file.seek(SeekFrom::Start(offset))?;
        file.by_ref().take(length.min(MOST_NOTES)).read_to_end(&mut content)?;
        match kind {
            PT_INTERP => {
                found.loader = Some(String::from_utf8_lossy(&content).trim_end_matches('\0').to_owned());
            }
            _ => found.go |= has_note_of(&content, GO),
        }
    }
    Ok(found)
}

/// Returns whether any of the notes has this owner.
fn has_note_of(mut notes: &[u8], owner: &[u8]) -> bool {
    let padded = |length: u64| (length as usize).next_multiple_of(4);
    while notes.len() >= 12 {
        let (name, content) = (number(notes, 0, 4), number(notes, 4, 4));
        if notes.get(12..12 + name as usize) == Some(owner) {
            return true;
        }
        notes = notes.get(12 + padded(name) + padded(content)..).unwrap_or_default();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(owner: &[u8], content: &[u8]) -> Vec<u8> {
        let mut bytes: Vec<u8> = [owner.len() as u32, content.len() as u32, 4]
            .iter()
            .flat_map(|word| word.to_le_bytes())
            .collect();
        for part in [owner, content] {
            bytes.extend(part);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
        }
        bytes
    }

    #[test]
    fn notes_are_found_behind_others() {
        let notes = [note(b"GNU\0", b"12345"), note(GO, b"id")].concat();
        assert!(has_note_of(&notes, GO) && has_note_of(&notes, b"GNU\0"));
        assert!(!has_note_of(&note(b"GNU\0", b"Go\0\0"), GO));
        assert!(!has_note_of(&notes[..20], GO) && !has_note_of(&[0xff; 40], GO));
    }

    #[test]
    fn this_program_can_be_preloaded_and_a_file_of_words_is_the_kernels_business() {
        assert!(check(&std::env::current_exe().unwrap()).is_ok());
        assert!(check(Path::new(file!().trim_start_matches("crates/homa-cli/"))).is_ok());
        assert!(check(Path::new("/no/such/file")).unwrap_err().to_string().contains("/no/such/file"));
    }
}
