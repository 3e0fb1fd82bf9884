//! Rust text to tokens with line numbers: comments and the insides of strings do not count.
//!
//! Not a parser: the compiler's lexer finds words and strings, and matching braces are all that the
//! rules of `rooms` and `tidy` ask beyond that.

use ra_ap_rustc_lexer::{FrontmatterAllowed, TokenKind, tokenize};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    /// Line it starts on, from 1.
    pub(crate) line: usize,
    /// Line it ends on: a later one for a string with line breaks in it.
    pub(crate) end: usize,
    pub(crate) kind: Kind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A word: identifier or keyword, a raw one without its `r#`.
    Word(String),
    /// A string of any sort, without its quotes; escapes are left as written.
    Text(String),
    Mark(char),
    /// A number, a character or a lifetime: no rule asks which.
    Other,
}

impl Token {
    pub(crate) fn is_word(&self, word: &str) -> bool {
        matches!(&self.kind, Kind::Word(w) if w == word)
    }

    pub(crate) fn is_mark(&self, mark: char) -> bool {
        self.kind == Kind::Mark(mark)
    }

    pub(crate) fn word(&self) -> Option<&str> {
        match &self.kind {
            Kind::Word(word) => Some(word),
            Kind::Text(_) | Kind::Mark(_) | Kind::Other => None,
        }
    }
}

/// The tokens of a source text. Never fails: text that it does not understand becomes punctuation.
pub(crate) fn tokens(text: &str) -> Vec<Token> {
    let (mut found, mut rest, mut line) = (Vec::new(), text, 1);
    for token in tokenize(text, FrontmatterAllowed::No) {
        let (word, after) = rest.split_at(usize::try_from(token.len).expect("a file is short"));
        let end = line + word.matches('\n').count();
        if let Some(kind) = kind(token.kind, word) {
            found.push(Token { line, end, kind });
        }
        (rest, line) = (after, end);
    }
    found
}

/// Our kind for a token of the compiler's lexer; none for comments and white space.
#[expect(clippy::wildcard_enum_match_arm, reason = "all the others are punctuation")]
fn kind(kind: TokenKind, word: &str) -> Option<Kind> {
    Some(match kind {
        TokenKind::LineComment { .. } | TokenKind::BlockComment { .. } | TokenKind::Whitespace => {
            return None;
        }
        TokenKind::Ident => Kind::Word(word.to_owned()),
        TokenKind::RawIdent => Kind::Word(word.trim_start_matches("r#").to_owned()),
        TokenKind::Literal { .. } if word.ends_with(['"', '#']) => {
            let quoted = word.trim_start_matches(['r', 'b', 'c']).trim_matches('#');
            let text = quoted.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
            Kind::Text(text.unwrap_or(quoted).to_owned())
        }
        TokenKind::Literal { .. } | TokenKind::Lifetime { .. } => Kind::Other,
        _ => Kind::Mark(word.chars().next()?),
    })
}

/// Where the bracket opened at `open` closes, `{` with `}` and so on; the last token if it never
/// does.
pub(crate) fn closing(tokens: &[Token], open: usize) -> usize {
    let mut depth = 0_usize;
    for (index, token) in tokens.iter().enumerate().skip(open) {
        match token.kind {
            Kind::Mark('{' | '(' | '[') => depth += 1,
            Kind::Mark('}' | ')' | ']') => depth = depth.saturating_sub(1),
            Kind::Mark(_) | Kind::Word(_) | Kind::Text(_) | Kind::Other => continue,
        }
        if depth == 0 {
            return index;
        }
    }
    tokens.len().saturating_sub(1)
}

/// The tokens but for what stands below `#[cfg(test)]`, and how many lines that takes.
pub(crate) fn without_tests(tokens: Vec<Token>) -> (Vec<Token>, usize) {
    let (mut left, mut lines, mut at) = (Vec::new(), 0, 0);
    while at < tokens.len() {
        let is = |offset: usize, what: &dyn Fn(&Token) -> bool| {
            tokens.get(at + offset).is_some_and(what)
        };
        let is_attribute = is(0, &|t| t.is_mark('#')) && is(1, &|t| t.is_mark('['));
        if !(is_attribute && is(2, &|t| t.is_word("cfg")) && is(4, &|t| t.is_word("test"))) {
            left.push(tokens[at].clone());
            at += 1;
            continue;
        }
        let first = tokens[at].line;
        at = closing(&tokens, at + 1) + 1;
        while tokens.get(at).is_some_and(|t| !(t.is_mark('{') || t.is_mark(';'))) {
            at += 1;
        }
        if tokens.get(at).is_some_and(|t| t.is_mark('{')) {
            at = closing(&tokens, at);
        }
        let last = tokens.get(at).or_else(|| tokens.last()).map_or(first, |token| token.end);
        lines += last + 1 - first;
        at += 1;
    }
    (left, lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        tokens(text).iter().filter_map(Token::word).map(str::to_owned).collect()
    }

    fn texts(text: &str) -> Vec<String> {
        let of = |token: Token| match token.kind {
            Kind::Text(text) => Some(text),
            Kind::Word(_) | Kind::Mark(_) | Kind::Other => None,
        };
        tokens(text).into_iter().filter_map(of).collect()
    }

    #[test]
    fn comments_are_not_words() {
        assert_eq!(words("a // b\n/* c /* d */ e */ f /// g"), ["a", "f"]);
    }

    #[test]
    fn strings_are_not_words() {
        assert_eq!(words(r##"a "b \" c" r#"d " e"# b"f" 'g' b'h' i"##), ["a", "i"]);
        assert_eq!(texts(r##""b \" c" r#"d " e"# br"f\""##), ["b \\\" c", "d \" e", "f\\"]);
    }

    #[test]
    fn lifetimes_and_characters_do_not_swallow_code() {
        assert_eq!(
            words(r"fn f<'a>(x: &'a str) { '\'' ; '{' ; '\u{7d}' ; y }"),
            ["fn", "f", "x", "str", "y"]
        );
    }

    #[test]
    fn what_stands_below_cfg_test_is_left_out_with_its_lines() {
        let text = "a\n#[cfg(test)]\nmod t {\n b {}\n}\nc\n#[cfg(test)]\nuse d;\n#[cfg(unix)]\ne";
        let (left, lines) = without_tests(tokens(text));
        let words: Vec<_> = left.iter().filter_map(Token::word).collect();
        assert_eq!((words, lines), (vec!["a", "c", "cfg", "unix", "e"], 6));
    }

    #[test]
    fn raw_words_lose_their_mark() {
        assert_eq!(words("r#type r b br rest crab"), ["type", "r", "b", "br", "rest", "crab"]);
    }

    #[test]
    fn lines_are_counted_through_strings_and_comments() {
        let found = tokens("\"a\n\n\" /* \n */ b");
        assert_eq!(found.iter().map(|t| t.line).collect::<Vec<_>>(), [1, 4]);
    }

    #[test]
    fn a_bracket_closes_where_its_own_kind_balances() {
        let found = tokens("{ ( [ \"}\" ] ) { } } x");
        assert_eq!(closing(&found, 0), found.len() - 2);
        assert_eq!(closing(&tokens("{ a"), 0), 1);
    }
}
