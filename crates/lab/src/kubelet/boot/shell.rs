//! A reader of shell scripts: enough of the language for what prepares a node, refusing what it cannot read.

/// A piece of a word.
#[derive(Clone, Debug, PartialEq)]
pub enum Piece {
    /// As written.
    Text(String),
    /// `$name`, `${name}`, `${name[@]}`, `${name:-fallback}`.
    Variable { name: String, fallback: Option<Box<Word>>, quoted: bool },
    /// `$(script)`.
    Command { script: String, quoted: bool },
    /// `(a b c)` of an assignment.
    Array(Vec<Word>),
}

/// A word before its expansion.
pub type Word = Vec<Piece>;

#[derive(Clone, Debug, PartialEq)]
enum Token {
    Word(Word),
    Operator(&'static str),
    Here(Word),
}

/// Where output goes or input comes from.
#[derive(Clone, Debug, PartialEq)]
pub enum Redirect {
    /// `>` and `>>` of the standard output.
    Out { to: Word, append: bool },
    /// Of another stream, or a copy of one: of no consequence here.
    Aside,
    /// `<`.
    In(Word),
    /// `<<` and `<<<`.
    Here(Word),
}

/// A command with all that belongs to it.
#[derive(Clone, Debug, PartialEq)]
pub enum Node {
    Simple { sets: Vec<(String, Word)>, words: Vec<Word>, redirects: Vec<Redirect> },
    Pipe(Vec<Node>),
    And(Box<Node>, Box<Node>),
    Or(Box<Node>, Box<Node>),
    Not(Box<Node>),
    List(Vec<Node>),
    If { arms: Vec<(Node, Node)>, otherwise: Option<Box<Node>> },
    Case { word: Word, arms: Vec<(Vec<Word>, Node)> },
    For { name: String, words: Vec<Word>, body: Box<Node> },
    While { until: bool, condition: Box<Node>, body: Box<Node> },
    Function { name: String, body: Box<Node> },
    Redirected { node: Box<Node>, redirects: Vec<Redirect> },
}

/// Reads a script; the error is worded as a shell's.
pub fn parse(script: &str) -> Result<Node, String> {
    let tokens = Lexer { chars: script.chars().collect(), at: 0, heres: Vec::new() }.tokens()?;
    let mut parser = Parser { tokens, at: 0 };
    let all = parser.list(&[])?;
    match parser.peek() {
        None => Ok(all),
        Some(token) => Err(unexpected(Some(token))),
    }
}

fn unexpected(token: Option<&Token>) -> String {
    match token {
        None => "syntax error: unexpected end of file".to_owned(),
        Some(Token::Operator(operator)) => {
            format!("syntax error near unexpected token `{}'", operator.escape_debug())
        }
        Some(Token::Word(word)) => {
            format!("syntax error near unexpected token `{}'", plain(word).unwrap_or("word"))
        }
        Some(Token::Here(_)) => "syntax error near a here-document".to_owned(),
    }
}

/// The text of a word without quotes or variables.
fn plain(word: &Word) -> Option<&str> {
    match &word[..] {
        [Piece::Text(text)] => Some(text),
        _ => None,
    }
}

struct Lexer {
    chars: Vec<char>,
    at: usize,
    /// Places of here-documents whose text begins after the next line end: token, word, tabs cut, expanded.
    heres: Vec<(usize, String, bool, bool)>,
}

/// The operators, longest first.
const OPERATORS: [&str; 16] =
    ["&>>", "<<<", "<<-", "&&", "||", ";;", ">>", "<<", ">&", "&>", ">", "<", "|", "&", ";", "("];

impl Lexer {
    fn peek(&self) -> Option<char> {
        self.chars.get(self.at).copied()
    }

    fn starts(&self, text: &str) -> bool {
        text.chars().enumerate().all(|(i, c)| self.chars.get(self.at + i) == Some(&c))
    }

    fn tokens(mut self) -> Result<Vec<Token>, String> {
        let mut tokens = Vec::new();
        while let Some(c) = self.peek() {
            match c {
                '\n' => {
                    self.at += 1;
                    tokens.push(Token::Operator("\n"));
                    self.read_heres(&mut tokens)?;
                }
                '\\' if self.starts("\\\n") => self.at += 2,
                c if c.is_whitespace() => self.at += 1,
                '#' => {
                    while self.peek().is_some_and(|c| c != '\n') {
                        self.at += 1;
                    }
                }
                '0'..='9' if self.is_stream_number() => self.at += 1,
                ')' => {
                    self.at += 1;
                    tokens.push(Token::Operator(")"));
                }
                _ => match OPERATORS.iter().find(|operator| self.starts(operator)) {
                    Some(operator) => {
                        let aside = matches!(
                            self.at.checked_sub(1).map(|i| self.chars[i]),
                            Some('2'..='9')
                        );
                        self.at += operator.chars().count();
                        self.operator(operator, aside, &mut tokens)?;
                    }
                    None => {
                        let word = self.word(false)?;
                        tokens.push(Token::Word(word));
                    }
                },
            }
        }
        Ok(tokens)
    }

    /// A digit that stands directly before `<` or `>` and begins a word.
    fn is_stream_number(&self) -> bool {
        let before = self.at.checked_sub(1).map(|i| self.chars[i]);
        before.is_none_or(char::is_whitespace)
            && matches!(self.chars.get(self.at + 1), Some('<' | '>'))
    }

    fn operator(
        &mut self,
        operator: &'static str,
        aside: bool,
        tokens: &mut Vec<Token>,
    ) -> Result<(), String> {
        match operator {
            "<<" | "<<-" => {
                while matches!(self.peek(), Some(' ' | '\t')) {
                    self.at += 1;
                }
                let quoted = matches!(self.peek(), Some('\'' | '"' | '\\'));
                let word = self.word(false)?;
                let Some(end) = plain(&word) else { return Err(unexpected(tokens.last())) };
                self.heres.push((tokens.len(), end.to_owned(), operator == "<<-", !quoted));
                tokens.push(Token::Here(Vec::new()));
            }
            // A stream other than the standard output: the target is read and let go.
            ">" | ">>" if aside => tokens.push(Token::Operator("2>")),
            _ => tokens.push(Token::Operator(operator)),
        }
        Ok(())
    }

    fn read_heres(&mut self, tokens: &mut [Token]) -> Result<(), String> {
        for (token, end, cut, expanded) in std::mem::take(&mut self.heres) {
            let mut text = String::new();
            loop {
                if self.at >= self.chars.len() {
                    break;
                }
                let mut line = String::new();
                while let Some(c) = self.peek() {
                    self.at += 1;
                    if c == '\n' {
                        break;
                    }
                    line.push(c);
                }
                let line = if cut { line.trim_start_matches('\t') } else { &line };
                if line == end {
                    break;
                }
                text.push_str(line);
                text.push('\n');
            }
            let word = if expanded { quoted_text(&text)? } else { vec![Piece::Text(text)] };
            tokens[token] = Token::Here(word);
        }
        Ok(())
    }

    /// One word; in an array `)` ends it too.
    fn word(&mut self, in_fallback: bool) -> Result<Word, String> {
        let mut word = Word::new();
        while let Some(c) = self.peek() {
            match c {
                '}' if in_fallback => break,
                c if c.is_whitespace() && !in_fallback => break,
                ';' | '&' | '|' | '<' | '>' | ')' if !in_fallback => break,
                '(' if !in_fallback => {
                    let names =
                        matches!(word.last(), Some(Piece::Text(text)) if text.ends_with('='));
                    if !(names && word.len() == 1) {
                        break;
                    }
                    self.at += 1;
                    word.push(self.array()?);
                }
                '\'' => {
                    self.at += 1;
                    let text = self.until('\'')?;
                    word.push(Piece::Text(text));
                }
                '"' => {
                    self.at += 1;
                    word.push(Piece::Text(String::new()));
                    self.double_quoted(&mut word, Some('"'))?;
                }
                '\\' => {
                    self.at += 1;
                    if let Some(c) = self.peek() {
                        self.at += 1;
                        if c != '\n' {
                            push_text(&mut word, c);
                        }
                    }
                }
                '$' | '`' => self.dollar(&mut word, false)?,
                c => {
                    self.at += 1;
                    push_text(&mut word, c);
                }
            }
        }
        Ok(merged(word))
    }

    fn array(&mut self) -> Result<Piece, String> {
        let mut words = Vec::new();
        loop {
            match self.peek() {
                None => return Err(unexpected(None)),
                Some(')') => {
                    self.at += 1;
                    return Ok(Piece::Array(words));
                }
                Some(c) if c.is_whitespace() => self.at += 1,
                Some('\\') if self.starts("\\\n") => self.at += 2,
                Some(_) => words.push(self.word(false)?),
            }
        }
    }

    fn until(&mut self, end: char) -> Result<String, String> {
        let mut text = String::new();
        while let Some(c) = self.peek() {
            self.at += 1;
            if c == end {
                return Ok(text);
            }
            text.push(c);
        }
        Err(format!("unexpected EOF while looking for matching `{end}'"))
    }

    fn double_quoted(&mut self, word: &mut Word, end: Option<char>) -> Result<(), String> {
        while let Some(c) = self.peek() {
            match c {
                c if Some(c) == end => {
                    self.at += 1;
                    return Ok(());
                }
                '\\' => {
                    self.at += 1;
                    let next = self.peek();
                    match next {
                        Some('$' | '`' | '"' | '\\') => push_text(word, next.unwrap_or('\\')),
                        Some('\n') => {}
                        Some(other) => {
                            push_text(word, '\\');
                            push_text(word, other);
                        }
                        None => push_text(word, '\\'),
                    }
                    self.at += 1;
                }
                '$' | '`' => self.dollar(word, true)?,
                c => {
                    self.at += 1;
                    push_text(word, c);
                }
            }
        }
        if end.is_some() {
            Err("unexpected EOF while looking for matching `\"'".into())
        } else {
            Ok(())
        }
    }

    fn dollar(&mut self, word: &mut Word, quoted: bool) -> Result<(), String> {
        if self.peek() == Some('`') {
            self.at += 1;
            let script = self.until('`')?;
            word.push(Piece::Command { script, quoted });
            return Ok(());
        }
        self.at += 1;
        match self.peek() {
            Some('(') => {
                self.at += 1;
                let script = self.balanced()?;
                word.push(Piece::Command { script, quoted });
            }
            Some('{') => {
                self.at += 1;
                let mut name = String::new();
                while let Some(c) = self.peek() {
                    if !(c.is_alphanumeric() || "_@#?*[]".contains(c))
                        || (c == '#' && !name.is_empty())
                    {
                        break;
                    }
                    name.push(c);
                    self.at += 1;
                }
                let fallback = if self.starts(":-") || self.starts(":=") || self.starts("-") {
                    self.at += if self.starts("-") { 1 } else { 2 };
                    Some(Box::new(self.word(true)?))
                } else {
                    None
                };
                if !self.until('}')?.is_empty() {
                    return Err(format!("${{{name}}}: bad substitution"));
                }
                word.push(Piece::Variable { name, fallback, quoted });
            }
            Some(c) if c.is_alphabetic() || c == '_' => {
                let mut name = String::new();
                while let Some(c) = self.peek().filter(|c| c.is_alphanumeric() || *c == '_') {
                    name.push(c);
                    self.at += 1;
                }
                word.push(Piece::Variable { name, fallback: None, quoted });
            }
            Some(c) if c.is_ascii_digit() || "@#?*$!".contains(c) => {
                self.at += 1;
                word.push(Piece::Variable { name: c.to_string(), fallback: None, quoted });
            }
            _ => push_text(word, '$'),
        }
        Ok(())
    }

    /// The text up to the parenthesis that closes the one just read.
    fn balanced(&mut self) -> Result<String, String> {
        let mut text = String::new();
        let mut depth = 1;
        while let Some(c) = self.peek() {
            self.at += 1;
            match c {
                '(' => depth += 1,
                ')' => depth -= 1,
                '\'' => {
                    text.push(c);
                    text.push_str(&self.until('\'')?);
                }
                _ => {}
            }
            if depth == 0 {
                return Ok(text);
            }
            text.push(c);
        }
        Err("unexpected EOF while looking for matching `)'".to_owned())
    }
}

/// A text in which variables are replaced and nothing else, as between double quotes.
fn quoted_text(text: &str) -> Result<Word, String> {
    let mut lexer = Lexer { chars: text.chars().collect(), at: 0, heres: Vec::new() };
    let mut word = Word::new();
    lexer.double_quoted(&mut word, None)?;
    Ok(word)
}

fn push_text(word: &mut Word, c: char) {
    if let Some(Piece::Text(text)) = word.last_mut() {
        text.push(c);
    } else {
        word.push(Piece::Text(c.to_string()));
    }
}

fn merged(word: Word) -> Word {
    let mut out = Word::new();
    for piece in word {
        match (out.last_mut(), piece) {
            (Some(Piece::Text(before)), Piece::Text(text)) => before.push_str(&text),
            (_, piece) => out.push(piece),
        }
    }
    out
}

mod grammar;
use grammar::Parser;
