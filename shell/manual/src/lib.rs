//! What a program says of itself beside its help: completions for shells, and a manual page for
//! each of its verbs.
//!
//! ```text
//! clap::Command ──> FOLDER/bash-completion/completions/NAME
//!                   FOLDER/zsh/vendor-completions/_NAME
//!                   FOLDER/fish/vendor_completions.d/NAME.fish
//!                   FOLDER/man/manN/NAME.N, NAME-VERB.N, ..
//! ```
//!
//! The folder is as `/usr/share` is, and `~/.local/share`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap::Command;
use clap_complete::Shell;
use clap_mangen::Man;

/// The verb `manual` of every program.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Where to write them: what is /usr/share, or ~/.local/share
    folder: PathBuf,
}

/// Whose manual it is: sections of manuals are for different readers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    /// For whoever operates a fleet.
    Commands,
    /// For whoever runs the machine. Names of pages may be the same as those of commands.
    Daemons,
}

impl Section {
    fn number(self) -> &'static str {
        match self {
            Self::Commands => "1",
            Self::Daemons => "8",
        }
    }
}

impl Args {
    /// Writes all of a program's.
    pub fn write(&self, command: Command, section: Section) -> io::Result<()> {
        let name = command.get_name().to_owned();
        let mut command = command.disable_help_subcommand(true);
        command.build();
        let places = [
            (Shell::Bash, "bash-completion/completions"),
            (Shell::Zsh, "zsh/vendor-completions"),
            (Shell::Fish, "fish/vendor_completions.d"),
        ];
        for (shell, place) in places {
            let folder = made(self.folder.join(place))?;
            let path = clap_complete::generate_to(shell, &mut command, &name, &folder)?;
            if shell == Shell::Bash {
                // Debian's bash-completion loads the file by the program's name.
                fs::rename(path, folder.join(&name))?;
            }
        }
        let folder = made(self.folder.join(format!("man/man{}", section.number())))?;
        pages(&command, section, &folder)
    }
}

fn made(folder: PathBuf) -> io::Result<PathBuf> {
    fs::create_dir_all(&folder)?;
    Ok(folder)
}

/// A page for a command and each below it.
fn pages(command: &Command, section: Section, folder: &Path) -> io::Result<()> {
    if command.is_hide_set() {
        return Ok(());
    }
    command.get_subcommands().try_for_each(|below| pages(below, section, folder))?;
    let number = section.number();
    let name = command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned();
    let source = format!("nearcast {}", env!("CARGO_PKG_VERSION"));
    let page = Man::new(command.clone()).section(number).source(source).manual("Nearcast");
    let mut text = Vec::new();
    page.render(&mut text)?;
    fs::write(folder.join(format!("{name}.{number}")), text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Arg;

    fn command() -> Command {
        let show = Command::new("show").about("Show it").arg(Arg::new("id").required(true));
        let thing = Command::new("thing").about("Things").subcommand(show);
        let hidden = Command::new("child").hide(true);
        Command::new("program").about("Does it").version("1").subcommands([thing, hidden])
    }

    #[test]
    fn each_shell_has_its_file_and_each_verb_its_page() {
        let folder = tempfile::tempdir().unwrap();
        let args = Args { folder: folder.path().to_owned() };
        args.write(command(), Section::Daemons).unwrap();
        let read = |path: &str| fs::read_to_string(folder.path().join(path)).unwrap();
        assert!(read("bash-completion/completions/program").contains("complete -F _program"));
        assert!(read("zsh/vendor-completions/_program").starts_with("#compdef program"));
        assert!(read("fish/vendor_completions.d/program.fish").contains("complete -c program"));
        let page = read("man/man8/program-thing-show.8");
        assert!(page.contains(".TH program-thing-show 8"), "{page}");
        assert!(page.contains("Show it"), "{page}");
        let pages = fs::read_dir(folder.path().join("man/man8")).unwrap();
        let mut pages: Vec<_> = pages.map(|page| page.unwrap().file_name()).collect();
        pages.sort();
        assert_eq!(pages, ["program-thing-show.8", "program-thing.8", "program.8"]);
    }
}
