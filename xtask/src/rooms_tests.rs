use super::*;
use crate::map;
use crate::workspace::lock_edges;

const MAP_TEXT: &str = "
| room | modules | purpose |
| --- | --- | --- |
| `base/model` `base/wire` `pure/fill` `pure/seal` `pure/worker` | | |
| `shell/uring` `shell/tls` `shell/appliance` `shell/control` `tools/lab` | | |

| importer | may import |
| --- | --- |
| `model` | |
| `wire` `fill` `seal` `uring` | `model` |
| `worker` | `model`, `fill`, `seal` |
| `tls` | `model`, `seal`, `uring` |
| `appliance` | `model`, `wire`, `worker`, `uring`, `tls` |
| `control` | `model`, `wire` |
| `lab` | `model`, `wire`, `uring` |

| library | only in |
| --- | --- |
| `serde` `serde_json` | `wire`, `control`, `tools/` |
| `tokio` | `control`, `tools/` |
| `anyhow` | `shell/`, `tools/` |
| `blake3` | `model` |
";
const INHERIT: &str = "[lints]\nworkspace = true\n";
const UNSAFE_LINTS: &str = "[lints.rust]\nunsafe_code = \"deny\"\n[lints.clippy]\n\
    undocumented_unsafe_blocks = \"deny\"\nmultiple_unsafe_ops_per_block = \"deny\"\n";

#[test]
fn a_lawful_house_has_no_findings() {
    check_house(|_| {}, &[]);
}

#[test]
fn an_edge_outside_the_table_is_refused() {
    check_house(
        |house| house.depend("pure/fill", "[dependencies]\nseal.workspace = true"),
        &["pure/fill/Cargo.toml: [dependencies] fill -> seal is not an allowed import"],
    );
    check_house(
        |house| house.depend("pure/fill", "[dev-dependencies]\nworker.workspace = true"),
        &["pure/fill/Cargo.toml: [dev-dependencies] fill -> worker is not an allowed import"],
    );
    check_house(
        |house| {
            house.depend("base/model", "[target.'cfg(unix)'.dependencies]\nuring.workspace = true")
        },
        &["base/model/Cargo.toml: [dependencies] model -> uring is not an allowed import"],
    );
}

#[test]
fn a_room_outside_the_tables_is_refused() {
    check_house(
        |house| house.add("pure/rumour", INHERIT),
        &[
            "pure/rumour/Cargo.toml: pure/rumour is not in the table of rooms",
            "pure/rumour/Cargo.toml: rumour has no row in the table of imports",
        ],
    );
}

#[test]
fn a_module_that_only_the_map_knows_is_refused() {
    let named = |house: &mut House| {
        house.map_text = MAP_TEXT
            .replace("| `shell/uring` ", "| `pure/fill` | `plan` `rate` | |\n| `shell/uring` ");
    };
    let want = "ARCHITECTURE.md: `fill` has no module `";
    check_house(named, &[&format!("{want}plan`"), &format!("{want}rate`")]);
    check_house(
        |house| {
            named(house);
            house.source("pure/fill/src/plan.rs", "");
            house.source("pure/fill/src/rate/mod.rs", "");
        },
        &[],
    );
}

#[test]
fn a_room_in_no_layer_is_refused() {
    check_house(
        |house| house.add("crates/rumour", INHERIT),
        &[
            "crates/rumour/Cargo.toml: crates/rumour is not in the table of rooms",
            "crates/rumour/Cargo.toml: crates/rumour stands in no layer",
            "crates/rumour/Cargo.toml: rumour has no row in the table of imports",
        ],
    );
}

#[test]
fn a_package_is_called_what_its_folder_is_called() {
    check_house(
        |house| house.rename("pure/fill", "filler"),
        &["pure/fill/Cargo.toml: the package is called Some(\"filler\")"],
    );
}

#[test]
fn the_table_itself_obeys_the_rules() {
    let refused = |row: &str, want: &[&str]| {
        check_house(|house| house.map_text = MAP_TEXT.replace("| `model` | |", row), want);
    };
    refused(
        "| `model` | `fill` |",
        &[
            "ARCHITECTURE.md: `model` may not import `fill`: imports go down",
            "ARCHITECTURE.md: the table of imports has a cycle through `fill`",
            "ARCHITECTURE.md: the table of imports has a cycle through `model`",
        ],
    );
    refused(
        "| `model` | |\n| `fill` | `wire` |",
        &["ARCHITECTURE.md: `fill` may not import `wire`"],
    );
    refused(
        "| `model` | |\n| `fill` | `seal` |",
        &["ARCHITECTURE.md: `fill` may not import `seal`"],
    );
    refused(
        "| `model` | |\n| `appliance` | `control` |",
        &["ARCHITECTURE.md: `appliance` may not import `control`: the two planes"],
    );
    refused(
        "| `model` | |\n| `lab` | `lab` |",
        &["ARCHITECTURE.md: the table of imports has a cycle through `lab`"],
    );
    refused(
        "| `model` | |\n| `appliance` | `lab` |",
        &["ARCHITECTURE.md: `appliance` may not import `lab`: imports go down"],
    );
    refused(
        "| `model` | `ghost` |",
        &["ARCHITECTURE.md: `model` may import `ghost`, which is no room"],
    );
    refused(
        "| `model` `ghost` | |",
        &["ARCHITECTURE.md: the table of imports has `ghost`, which is no room"],
    );
}

#[test]
fn rules_on_libraries_cannot_be_edited_away() {
    check_house(
        |house| house.map_text = MAP_TEXT.replace("| `tokio` | `control`, `tools/` |\n", ""),
        &["ARCHITECTURE.md: the table of libraries has no row for `tokio`"],
    );
}

#[test]
fn serde_and_anyhow_stay_where_they_belong() {
    check_house(
        |house| house.depend("pure/fill", "[dependencies]\nserde.workspace = true"),
        &["pure/fill/Cargo.toml: [dependencies] serde may only be in control, tools/, wire"],
    );
    check_house(
        |house| house.depend("base/wire", "[dev-dependencies]\nanyhow.workspace = true"),
        &["base/wire/Cargo.toml: [dev-dependencies] anyhow may only be in shell/, tools/"],
    );
}

#[test]
fn a_pure_room_takes_no_library_that_the_map_does_not_know() {
    check_house(
        |house| house.depend("pure/fill", "[dependencies]\nrand.workspace = true"),
        &["pure/fill/Cargo.toml: [dependencies] rand is not in the table of libraries"],
    );
    check_house(|house| house.depend("tools/lab", "[dependencies]\nrand.workspace = true"), &[]);
}

#[test]
fn tokio_does_not_reach_the_appliance_by_a_back_door() {
    check_house(
        |house| house.depend("shell/appliance", "[dependencies]\nfetch.workspace = true"),
        &["shell/appliance/Cargo.toml: fetch brings an async runtime along \
           (fetch -> h2 -> tokio)"],
    );
    check_house(
        |house| house.depend("shell/control", "[dependencies]\nfetch.workspace = true"),
        &[],
    );
    check_house(
        |house| house.depend("shell/appliance", "[dev-dependencies]\nfetch.workspace = true"),
        &[],
    );
}

#[test]
fn versions_are_named_once() {
    check_house(
        |house| house.depend("tools/lab", "[dependencies]\nrand = \"1\""),
        &["tools/lab/Cargo.toml: [dependencies] rand names its own version or path"],
    );
}

#[test]
fn every_library_has_a_record_and_a_use() {
    check_house(
        |house| {
            house.root = house
                .root
                .replace("[workspace.dependencies]", "[workspace.dependencies]\nnew = \"1\"")
        },
        &["Cargo.toml: new has no record", "Cargo.toml: no room uses new"],
    );
}

#[test]
fn a_room_without_the_lints_is_refused() {
    check_house(
        |house| house.manifest("pure/fill", ""),
        &["pure/fill/Cargo.toml: does not inherit the lints"],
    );
    check_house(
        |house| house.manifest("shell/tls", INHERIT),
        &[
            "shell/tls/Cargo.toml: [lints.rust] must have unsafe_code = \"deny\"",
            "shell/tls/Cargo.toml: holds unsafe code: [lints.clippy] must have multiple_unsafe_ops",
            "shell/tls/Cargo.toml: holds unsafe code: [lints.clippy] must have undocumented_unsafe",
        ],
    );
    check_house(
        |house| house.root = house.root.replace("forbid", "warn"),
        &["Cargo.toml: [workspace.lints.rust] must have unsafe_code = \"forbid\""],
    );
}

#[test]
fn unsafe_stands_in_two_places_only() {
    let code = "fn f() {\n    unsafe { g() }\n}\n";
    let refused = |path: &str, line: &str| check_house(|house| house.source(path, code), &[line]);
    refused("shell/appliance/src/main.rs", "shell/appliance/src/main.rs:2: `unsafe` belongs");
    refused("shell/tls/src/handshake.rs", "shell/tls/src/handshake.rs:2: `unsafe` belongs");
    refused("pure/fill/tests/it.rs", "pure/fill/tests/it.rs:2: `unsafe` belongs");
    check_house(|house| house.source("shell/tls/src/aead.rs", code), &[]);
    check_house(|house| house.source("shell/uring/src/sys.rs", code), &[]);
    check_house(
        |house| house.source("pure/fill/src/lib.rs", "// unsafe\nconst A: &str = \"unsafe\";"),
        &[],
    );
}

/// The findings of a small house after a change, each by how it begins.
#[track_caller]
fn check_house(change: impl FnOnce(&mut House), want: &[&str]) {
    let mut house = House::lawful();
    change(&mut house);
    let found = house.findings();
    let same = found.len() == want.len() && found.iter().zip(want).all(|(f, w)| f.starts_with(w));
    assert!(same, "found {found:#?}\nwanted {want:#?}");
}

struct House {
    members: Vec<Member>,
    map_text: String,
    root: String,
}

impl House {
    fn lawful() -> Self {
        let root = "[workspace.lints.rust]\nunsafe_code = \"forbid\"\n[workspace.dependencies]\n\
                    blake3 = \"1\"\nmodel = { path = \"base/model\" }\n";
        let mut house = Self { members: Vec::new(), map_text: MAP_TEXT.into(), root: root.into() };
        let rooms = ["base/wire", "pure/fill", "pure/seal", "pure/worker"];
        let bodies = ["shell/appliance", "shell/control", "tools/lab"];
        for folder in rooms.into_iter().chain(bodies) {
            house.add(folder, INHERIT);
        }
        house.add("base/model", &format!("{INHERIT}[dependencies]\nblake3.workspace = true"));
        house.add("shell/uring", UNSAFE_LINTS);
        house.add("shell/tls", UNSAFE_LINTS);
        house
    }

    fn add(&mut self, folder: &str, manifest: &str) {
        self.members.push(Member { folder: folder.into(), ..Member::default() });
        self.manifest(folder, manifest);
    }

    fn member(&mut self, folder: &str) -> &mut Member {
        self.members.iter_mut().find(|m| folder.starts_with(&m.folder)).unwrap()
    }

    fn manifest(&mut self, folder: &str, text: &str) {
        let name = folder.rsplit('/').next().unwrap();
        let text = format!("[package]\nname = \"{name}\"\n{text}");
        self.member(folder).manifest = text.parse().unwrap();
    }

    fn rename(&mut self, folder: &str, name: &str) {
        let text = format!("[package]\nname = \"{name}\"\n{INHERIT}");
        self.member(folder).manifest = text.parse().unwrap();
    }

    fn depend(&mut self, folder: &str, sections: &str) {
        self.manifest(folder, &format!("{INHERIT}{sections}"));
    }

    fn source(&mut self, path: &str, text: &str) {
        self.member(path).sources.push((path.into(), text.into()));
    }

    fn findings(self) -> Vec<String> {
        let lock = "
            [[package]]
            name = \"fetch\"
            dependencies = [\"h2\"]
            [[package]]
            name = \"h2\"
            dependencies = [\"tokio 1.0.0\"]";
        let workspace = Workspace {
            root: self.root.parse().unwrap(),
            members: self.members,
            lock: lock_edges(&lock.parse().unwrap()),
        };
        let map = map::parse(&self.map_text).unwrap();
        let mut findings = check(&workspace, &map, "`blake3`");
        // `model` and the like change in these tests; the use of blake3 is asked for in one only.
        findings
            .retain(|f| f.text != "no room uses blake3: take it out of [workspace.dependencies]");
        findings.into_iter().map(|f| format!("{}: {}", f.place, f.text)).collect()
    }
}
