//! Completions and manual pages, as a package has them.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

fn written() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let mut nearcast = Command::new(env!("CARGO_BIN_EXE_nearcast"));
    assert!(nearcast.arg("manual").arg(folder.path()).status().unwrap().success());
    folder
}

#[test]
fn bash_completes_things_verbs_and_options() {
    let folder = written();
    let file = folder.path().join("bash-completion/completions/nearcast");
    let completed = |words: &[&str]| {
        let (last, count) = (words.last().unwrap(), words.len() - 1);
        let before = words[count - 1];
        let script = format!(
            "set -u; source {file:?}; COMP_WORDS=({}); COMP_CWORD={count}\n\
             _nearcast nearcast {last:?} {before:?}; echo \"${{COMPREPLY[*]}}\"",
            words.iter().map(|word| format!("{word:?}")).collect::<Vec<_>>().join(" ")
        );
        let output = Command::new("bash").args(["--norc", "-c", &script]).output().unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success() && errors.is_empty(), "{errors}");
        let text = String::from_utf8(output.stdout).unwrap();
        text.split_whitespace().map(str::to_owned).collect::<BTreeSet<_>>()
    };
    let of = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    assert_eq!(completed(&["nearcast", "app"]), of(&["appliance", "apply"]));
    let verbs = completed(&["nearcast", "site", ""]);
    for verb in ["list", "show", "set", "remove"] {
        assert!(verbs.contains(verb), "{verbs:?}");
    }
    assert_eq!(completed(&["nearcast", "appliance", "set", "--we"]), of(&["--weight"]));
}

#[test]
fn every_verb_has_a_page_that_is_in_order() {
    let folder = written();
    let mut count = 0;
    for entry in fs::read_dir(folder.path().join("man/man1")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let text = fs::read_to_string(&path).unwrap();
        let title = text.lines().find(|line| line.starts_with(".TH ")).unwrap();
        assert!(title.starts_with(&format!(".TH {name} 1 ")), "{title}");
        for section in [".SH NAME", ".SH SYNOPSIS", ".SH DESCRIPTION"] {
            assert!(text.lines().any(|line| line == section), "{name} has no {section}");
        }
        // A line that begins with a dot or a quote by accident would vanish.
        for line in text.lines().filter(|line| line.starts_with(['.', '\''])) {
            let word = line.split(' ').next().unwrap();
            let known =
                [".TH", ".SH", ".SS", ".TP", ".br", ".ie", ".el", ".RS", ".RE", ".PP", ".IP"];
            assert!(known.contains(&word), "{name}: {line}");
        }
        count += 1;
    }
    assert!(60 < count, "{count} pages");
    assert!(folder.path().join("man/man1/nearcast-asset-window.1").exists());
}
