//! Every committed input, once: what a fuzzer found before is found again.

use std::fs;
use std::path::Path;

/// Bounds of one corpus, so that a clone stays small.
const FILES_MAX: usize = 300;
const BYTES_MAX: u64 = 1 << 20;

#[test]
fn every_input_of_every_corpus_holds() {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz");
    for (name, target) in fuzzing::TARGETS {
        let entry = fs::read_to_string(fuzz.join(format!("fuzz_targets/{name}.rs"))).unwrap();
        assert!(entry.contains(&format!("fuzzing::{name}(")), "{name} has its own entry");
        let corpus = fs::read_dir(fuzz.join("corpus").join(name)).unwrap();
        let (mut files, mut bytes) = (0, 0);
        for input in corpus {
            let path = input.unwrap().path();
            let data = fs::read(&path).unwrap();
            bytes += u64::try_from(data.len()).unwrap();
            files += 1;
            if std::panic::catch_unwind(|| target(&data)).is_err() {
                panic!("{name}: {}", path.display());
            }
        }
        assert!((8..=FILES_MAX).contains(&files), "{name}: {files} inputs");
        assert!(bytes <= BYTES_MAX, "{name}: {bytes} bytes");
    }
}

#[test]
fn every_entry_is_in_the_list() {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz");
    let entries = fs::read_dir(fuzz.join("fuzz_targets")).unwrap().count();
    assert_eq!(entries, fuzzing::TARGETS.len());
}
