//! Rust text to tokens with line numbers: comments and the insides of strings do not count.
//!
//! Not a parser. It knows just enough to find words, strings and matching braces, which is all
//! that the rules of `rooms` and `tidy` ask of a source file.

/// One token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    /// Line it starts on, from 1.
    pub(crate) line: usize,
    /// Line it ends on: a later one for a string with line breaks in it.
    pub(crate) end: usize,
    pub(crate) kind: Kind,
}

/// The kinds of tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A word: identifier or keyword, a raw one without its `r#`.
    Word(String),
    /// A string of any sort, without its quotes; escapes are left as written.
    Text(String),
    /// One character of punctuation.
    Mark(char),
    /// A number, a character or a lifetime: no rule asks which.
    Other,
}

impl Token {
    /// True if it is this word.
    pub(crate) fn is_word(&self, word: &str) -> bool {
        matches!(&self.kind, Kind::Word(w) if w == word)
    }

    /// True if it is this punctuation.
    pub(crate) fn is_mark(&self, mark: char) -> bool {
        self.kind == Kind::Mark(mark)
    }

    /// The word, if it is one.
    pub(crate) fn word(&self) -> Option<&str> {
        match &self.kind {
            Kind::Word(word) => Some(word),
            Kind::Text(_) | Kind::Mark(_) | Kind::Other => None,
        }
    }
}

/// The tokens of a source text. Never fails: text that it does not understand becomes punctuation.
pub(crate) fn tokens(text: &str) -> Vec<Token> {
    let mut lexer = Lexer { chars: text.chars().collect(), at: 0, line: 1 };
    let mut found = Vec::new();
    while let Some(token) = lexer.next_token() {
        found.push(token);
    }
    found
}

struct Lexer {
    chars: Vec<char>,
    at: usize,
    line: usize,
}

impl Lexer {
    fn next_token(&mut self) -> Option<Token> {
        self.skip_blank();
        let line = self.line;
        let c = self.peek(0)?;
        let kind = if let Some(kind) = self.prefixed_text() {
            kind
        } else if c == '"' {
            Kind::Text(self.text(None))
        } else if c == '\'' {
            self.quote()
        } else if c.is_alphabetic() || c == '_' {
            Kind::Word(self.word())
        } else if c.is_ascii_digit() {
            // `1.5` becomes two numbers and a dot, `1u64` one: neither matters.
            self.word();
            Kind::Other
        } else {
            self.bump();
            Kind::Mark(c)
        };
        Some(Token { line, end: self.line, kind })
    }

    fn peek(&self, ahead: usize) -> Option<char> {
        self.chars.get(self.at + ahead).copied()
    }

    fn bump(&mut self) -> Option<char> {
        let c = self.peek(0)?;
        self.at += 1;
        if c == '\n' {
            self.line += 1;
        }
        Some(c)
    }

    /// Steps over white space and comments; block comments nest.
    fn skip_blank(&mut self) {
        loop {
            match (self.peek(0), self.peek(1)) {
                (Some(c), _) if c.is_whitespace() => {
                    self.bump();
                }
                (Some('/'), Some('/')) => {
                    while self.peek(0) != Some('\n') && self.bump().is_some() {}
                }
                (Some('/'), Some('*')) => self.skip_block_comment(),
                _ => return,
            }
        }
    }

    fn skip_block_comment(&mut self) {
        let mut depth = 0;
        loop {
            match (self.peek(0), self.peek(1)) {
                (Some('/'), Some('*')) => depth += 1,
                (Some('*'), Some('/')) => depth -= 1,
                (None, _) => return,
                _ => {
                    self.bump();
                    continue;
                }
            }
            self.bump();
            self.bump();
            if depth == 0 {
                return;
            }
        }
    }

    /// `r"..."`, `r#"..."#`, `b"..."`, `br"..."`, `c"..."`, `cr"..."`, `b'.'` and `r#word`.
    fn prefixed_text(&mut self) -> Option<Kind> {
        let rest = &self.chars[self.at..];
        let letters = rest.iter().take_while(|c| matches!(c, 'r' | 'b' | 'c')).count();
        let raw = match rest.get(..letters)? {
            ['r'] | ['b' | 'c', 'r'] => true,
            ['b' | 'c'] => false,
            _ => return None,
        };
        let hashes = rest[letters..].iter().take_while(|c| **c == '#').count();
        match rest.get(letters + hashes) {
            Some('"') if raw || hashes == 0 => {
                self.at += letters + hashes;
                Some(Kind::Text(self.text(raw.then_some(hashes))))
            }
            Some('\'') if rest[0] == 'b' && letters == 1 && hashes == 0 => {
                self.bump();
                Some(self.quote())
            }
            Some(_) if letters == 1 && raw && hashes == 1 => {
                self.at += 2;
                Some(Kind::Word(self.word()))
            }
            _ => None,
        }
    }

    /// A string from its opening quote on; `hashes` for a raw one.
    fn text(&mut self, hashes: Option<usize>) -> String {
        self.bump();
        let mut text = String::new();
        while let Some(c) = self.bump() {
            let closed = hashes.unwrap_or(0);
            if c == '"' && (0..closed).all(|i| self.peek(i) == Some('#')) {
                self.at += closed;
                break;
            }
            text.push(c);
            if c == '\\' && hashes.is_none() {
                text.extend(self.bump());
            }
        }
        text
    }

    /// A character or a lifetime, from its quote on.
    fn quote(&mut self) -> Kind {
        self.bump();
        match (self.peek(0), self.peek(1)) {
            (Some('\\'), _) => {
                self.bump();
                self.bump();
                while self.bump().is_some_and(|c| c != '\'') {}
            }
            (Some(_), Some('\'')) => {
                self.bump();
                self.bump();
            }
            _ => {
                self.word();
            }
        }
        Kind::Other
    }

    fn word(&mut self) -> String {
        let mut word = String::new();
        while let Some(c) = self.peek(0).filter(|c| c.is_alphanumeric() || *c == '_') {
            word.push(c);
            self.bump();
        }
        word
    }
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
