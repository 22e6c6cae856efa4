//! The grammar of the shell over its tokens.

use super::{Node, Piece, Redirect, Token, Word, plain, unexpected};

pub(super) struct Parser {
    pub(super) tokens: Vec<Token>,
    pub(super) at: usize,
}

impl Parser {
    pub(super) fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at)
    }

    fn is_operator(&self, operator: &str) -> bool {
        matches!(self.peek(), Some(Token::Operator(here)) if *here == operator)
    }

    fn take_operator(&mut self, operator: &str) -> bool {
        let here = self.is_operator(operator);
        self.at += usize::from(here);
        here
    }

    fn keyword(&self) -> Option<&str> {
        match self.peek() {
            Some(Token::Word(word)) => plain(word),
            _ => None,
        }
    }

    fn take_keyword(&mut self, keyword: &str) -> bool {
        let here = self.keyword() == Some(keyword);
        self.at += usize::from(here);
        here
    }

    fn demand(&mut self, keyword: &str) -> Result<(), String> {
        self.skip_lines();
        if self.take_keyword(keyword) { Ok(()) } else { Err(unexpected(self.peek())) }
    }

    fn skip_lines(&mut self) {
        while self.is_operator("\n") || self.is_operator(";") {
            self.at += 1;
        }
    }

    fn take_word(&mut self) -> Result<Word, String> {
        match self.peek() {
            Some(Token::Word(word)) => {
                let word = word.clone();
                self.at += 1;
                Ok(word)
            }
            other => Err(unexpected(other)),
        }
    }

    /// Commands up to one of these keywords, `)`, `;;` or the end.
    pub(super) fn list(&mut self, until: &[&str]) -> Result<Node, String> {
        let mut nodes = Vec::new();
        loop {
            while ["\n", ";", "&"].iter().any(|operator| self.is_operator(operator)) {
                self.at += 1;
            }
            let ended = self.peek().is_none() || self.is_operator(")") || self.is_operator(";;");
            if ended || self.keyword().is_some_and(|keyword| until.contains(&keyword)) {
                return Ok(Node::List(nodes));
            }
            nodes.push(self.chain()?);
        }
    }

    fn chain(&mut self) -> Result<Node, String> {
        let mut left = self.pipeline()?;
        loop {
            let and = self.take_operator("&&");
            if !and && !self.take_operator("||") {
                return Ok(left);
            }
            while self.take_operator("\n") {}
            let right = Box::new(self.pipeline()?);
            left = if and { Node::And(left.into(), right) } else { Node::Or(left.into(), right) };
        }
    }

    fn pipeline(&mut self) -> Result<Node, String> {
        if self.take_keyword("!") {
            return Ok(Node::Not(Box::new(self.pipeline()?)));
        }
        let mut all = vec![self.command()?];
        while self.take_operator("|") {
            while self.take_operator("\n") {}
            all.push(self.command()?);
        }
        Ok(if all.len() == 1 { all.remove(0) } else { Node::Pipe(all) })
    }

    fn command(&mut self) -> Result<Node, String> {
        let keyword = self.keyword().map(str::to_owned);
        let node = match keyword.as_deref() {
            Some("if") => self.conditional()?,
            Some("case") => self.case()?,
            Some("for") => self.for_loop()?,
            Some("while" | "until") => self.while_loop()?,
            Some("{") => {
                self.at += 1;
                let body = self.list(&["}"])?;
                self.demand("}")?;
                body
            }
            Some("function") => {
                self.at += 1;
                let name = self.take_word()?;
                self.function(&name)?
            }
            _ if self.take_operator("(") => {
                let body = self.list(&[])?;
                if !self.take_operator(")") {
                    return Err(unexpected(self.peek()));
                }
                body
            }
            Some("then" | "elif" | "else" | "fi" | "do" | "done" | "esac" | "}") => {
                return Err(unexpected(self.peek()));
            }
            _ => return self.simple(),
        };
        let mut redirects = Vec::new();
        while let Some(redirect) = self.redirect()? {
            redirects.push(redirect);
        }
        Ok(if redirects.is_empty() {
            node
        } else {
            Node::Redirected { node: node.into(), redirects }
        })
    }

    fn function(&mut self, name: &Word) -> Result<Node, String> {
        if self.take_operator("(") && !self.take_operator(")") {
            return Err(unexpected(self.peek()));
        }
        self.skip_lines();
        let name = plain(name).ok_or_else(|| unexpected(None))?.to_owned();
        Ok(Node::Function { name, body: Box::new(self.command()?) })
    }

    fn conditional(&mut self) -> Result<Node, String> {
        let mut arms = Vec::new();
        let mut otherwise = None;
        self.at += 1;
        loop {
            let condition = self.list(&["then"])?;
            self.demand("then")?;
            arms.push((condition, self.list(&["elif", "else", "fi"])?));
            if self.take_keyword("elif") {
                continue;
            }
            if self.take_keyword("else") {
                otherwise = Some(Box::new(self.list(&["fi"])?));
            }
            self.demand("fi")?;
            return Ok(Node::If { arms, otherwise });
        }
    }

    fn case(&mut self) -> Result<Node, String> {
        self.at += 1;
        let word = self.take_word()?;
        self.demand("in")?;
        let mut arms = Vec::new();
        loop {
            self.skip_lines();
            if self.take_keyword("esac") {
                return Ok(Node::Case { word, arms });
            }
            self.take_operator("(");
            let mut patterns = vec![self.take_word()?];
            while self.take_operator("|") {
                patterns.push(self.take_word()?);
            }
            if !self.take_operator(")") {
                return Err(unexpected(self.peek()));
            }
            arms.push((patterns, self.list(&["esac"])?));
            self.take_operator(";;");
        }
    }

    fn for_loop(&mut self) -> Result<Node, String> {
        self.at += 1;
        let name = self.take_word()?;
        let name = plain(&name).ok_or_else(|| unexpected(None))?.to_owned();
        let mut words = Vec::new();
        if self.take_keyword("in") {
            while let Some(Token::Word(word)) = self.peek() {
                words.push(word.clone());
                self.at += 1;
            }
        }
        let body = Box::new(self.block()?);
        Ok(Node::For { name, words, body })
    }

    fn while_loop(&mut self) -> Result<Node, String> {
        let until = self.keyword() == Some("until");
        self.at += 1;
        let condition = Box::new(self.list(&["do"])?);
        let body = Box::new(self.block()?);
        Ok(Node::While { until, condition, body })
    }

    fn block(&mut self) -> Result<Node, String> {
        self.demand("do")?;
        let body = self.list(&["done"])?;
        self.demand("done")?;
        Ok(body)
    }

    fn simple(&mut self) -> Result<Node, String> {
        let (mut sets, mut words, mut redirects) = (Vec::new(), Vec::new(), Vec::new());
        loop {
            if let Some(redirect) = self.redirect()? {
                redirects.push(redirect);
                continue;
            }
            let Some(Token::Word(word)) = self.peek() else { break };
            let word = word.clone();
            self.at += 1;
            let declares = matches!(
                words.first().and_then(plain),
                Some("local" | "export" | "declare" | "readonly" | "typeset")
            );
            match assignment(&word) {
                Some(set) if words.is_empty() || declares => sets.push(set),
                _ => words.push(word),
            }
            if words.len() == 1 && self.is_operator("(") {
                return self.function(&words[0]);
            }
        }
        if sets.is_empty() && words.is_empty() && redirects.is_empty() {
            return Err(unexpected(self.peek()));
        }
        Ok(Node::Simple { sets, words, redirects })
    }

    fn redirect(&mut self) -> Result<Option<Redirect>, String> {
        let operator = match self.peek() {
            Some(Token::Here(word)) => {
                let word = word.clone();
                self.at += 1;
                return Ok(Some(Redirect::Here(word)));
            }
            Some(Token::Operator(operator)) => *operator,
            _ => return Ok(None),
        };
        if !matches!(operator, ">" | ">>" | "<" | "<<<" | ">&" | "&>" | "&>>" | "2>") {
            return Ok(None);
        }
        self.at += 1;
        let target = self.take_word()?;
        Ok(Some(match operator {
            "<" => Redirect::In(target),
            "<<<" => Redirect::Here(target),
            ">" | "&>" => Redirect::Out { to: target, append: false },
            ">>" | "&>>" => Redirect::Out { to: target, append: true },
            _ => Redirect::Aside,
        }))
    }
}

fn assignment(word: &Word) -> Option<(String, Word)> {
    let Some(Piece::Text(text)) = word.first() else { return None };
    let (name, value) = text.split_once('=')?;
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    if name.is_empty() || !name.chars().all(is_name) || name.starts_with(|c: char| c.is_numeric()) {
        return None;
    }
    let mut rest = Word::new();
    if !value.is_empty() {
        rest.push(Piece::Text(value.to_owned()));
    }
    rest.extend_from_slice(&word[1..]);
    Some((name.to_owned(), rest))
}
