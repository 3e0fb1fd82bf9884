//! Credentials for a bucket, found where Amazon's own tools look for them: in the environment, or
//! in a profile of the credentials file. Never on the command line, where other users see them, and
//! never in a log.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};

pub(super) struct Credentials {
    pub(super) id: String,
    pub(super) secret: String,
    /// Of temporary ones.
    pub(super) token: Option<String>,
    /// Where they were found, for error messages.
    pub(super) from: String,
}

impl Credentials {
    /// From the environment, else from the profile that `AWS_PROFILE` names (or `default`).
    pub(super) fn find() -> anyhow::Result<Self> {
        Self::find_with(&|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
    }

    fn find_with(variable: &dyn Fn(&str) -> Option<String>) -> anyhow::Result<Self> {
        let profile = variable("AWS_PROFILE");
        let (id, secret) = (variable("AWS_ACCESS_KEY_ID"), variable("AWS_SECRET_ACCESS_KEY"));
        match (id, secret) {
            (Some(id), Some(secret)) => {
                let token = variable("AWS_SESSION_TOKEN");
                return Ok(Self { id, secret, token, from: "the environment".to_owned() });
            }
            (None, None) => {}
            (Some(_), None) => bail!("AWS_ACCESS_KEY_ID is set and AWS_SECRET_ACCESS_KEY is not"),
            (None, Some(_)) => bail!("AWS_SECRET_ACCESS_KEY is set and AWS_ACCESS_KEY_ID is not"),
        }
        let named = variable("AWS_SHARED_CREDENTIALS_FILE").map(PathBuf::from);
        let usual = || Some(PathBuf::from(variable("HOME")?).join(".aws/credentials"));
        let file = named.or_else(usual).filter(|file| file.exists() || profile.is_some());
        let file = file.context(
            "a bucket needs credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or name \
             a profile of ~/.aws/credentials in AWS_PROFILE",
        )?;
        Self::of_profile(&file, profile.as_deref().unwrap_or("default"))
    }

    fn of_profile(file: &Path, profile: &str) -> anyhow::Result<Self> {
        let shown = file.display();
        let text = std::fs::read_to_string(file)
            .with_context(|| format!("cannot read the credentials file {shown}"))?;
        let mut lines = text.lines().map(str::trim);
        ensure!(
            lines.any(|line| section(line) == Some(profile)),
            "{shown} has no profile [{profile}]: AWS_PROFILE names another"
        );
        let (mut id, mut secret, mut token) = (None, None, None);
        for line in lines.take_while(|line| section(line).is_none()) {
            let Some((key, value)) = line.split_once('=') else { continue };
            let value = Some(value.trim().to_owned());
            match key.trim() {
                "aws_access_key_id" => id = value,
                "aws_secret_access_key" => secret = value,
                "aws_session_token" => token = value,
                _ => {}
            }
        }
        let (Some(id), Some(secret)) = (id, secret) else {
            bail!(
                "profile [{profile}] in {shown} needs aws_access_key_id and \
                 aws_secret_access_key: other ways to sign in are not known here"
            )
        };
        Ok(Self { id, secret, token, from: format!("profile [{profile}] in {shown}") })
    }
}

/// Not derived: a secret must not be printed by mistake.
impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Credentials from {}", self.from)
    }
}

fn section(line: &str) -> Option<&str> {
    line.strip_prefix('[')?.strip_suffix(']').map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "[default]\naws_access_key_id = AKDEFAULT\naws_secret_access_key=s1\n\n\
        # for films\n[films]\naws_access_key_id=AKFILMS\naws_secret_access_key = a=b/c+d\n\
        aws_session_token = t\n[sso]\nsso_session = x\n";

    fn find(variables: &[(&str, &str)]) -> anyhow::Result<Credentials> {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join(".aws")).unwrap();
        std::fs::write(dir.path().join(".aws/credentials"), FILE).unwrap();
        let home = dir.path().to_str().unwrap().to_owned();
        Credentials::find_with(&|name| match name {
            "HOME" => Some(home.clone()),
            _ => variables.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned()),
        })
    }

    fn check(variables: &[(&str, &str)], id: &str, secret: &str, token: Option<&str>) {
        let found = find(variables).unwrap();
        assert_eq!((&*found.id, &*found.secret, found.token.as_deref()), (id, secret, token));
        let shown = format!("{found:?}");
        assert!(!shown.contains(secret) && !shown.contains(id), "{shown}");
    }

    #[test]
    fn the_environment_comes_before_the_file_and_a_profile_may_be_named() {
        let environment = [("AWS_ACCESS_KEY_ID", "AKENV"), ("AWS_SECRET_ACCESS_KEY", "sEnv")];
        check(&environment, "AKENV", "sEnv", None);
        check(&[], "AKDEFAULT", "s1", None);
        check(&[("AWS_PROFILE", "films")], "AKFILMS", "a=b/c+d", Some("t"));
    }

    #[test]
    fn what_is_missing_is_said() {
        let refused = |variables: &[(&str, &str)]| find(variables).unwrap_err().to_string();
        let half = refused(&[("AWS_ACCESS_KEY_ID", "AK")]);
        assert!(half.contains("AWS_SECRET_ACCESS_KEY is not"), "{half}");
        let none = refused(&[("AWS_PROFILE", "none")]);
        assert!(none.contains("has no profile [none]"), "{none}");
        let sso = refused(&[("AWS_PROFILE", "sso")]);
        assert!(sso.contains("other ways to sign in are not known here"), "{sso}");
        let file = refused(&[("AWS_SHARED_CREDENTIALS_FILE", "/nowhere/x"), ("AWS_PROFILE", "x")]);
        assert!(file.contains("cannot read the credentials file /nowhere/x"), "{file}");
        let nothing = Credentials::find_with(&|_| None).unwrap_err().to_string();
        assert!(nothing.contains("set AWS_ACCESS_KEY_ID"), "{nothing}");
    }
}
