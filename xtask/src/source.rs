//! Splits the code of a file into tokens. Comments, literals and unit tests are skipped.

/// A word, a path separator or a single character.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Token {
    /// An identifier or a keyword.
    Word(String),
    /// `::`.
    PathSeparator,
    /// Any other character except white space.
    Sign(char),
}

/// Returns the tokens of a file up to its unit tests, which are at the end.
pub fn tokens(text: &str) -> Vec<Token> {
    let text = match text.find("#[cfg(test)]\nmod tests {") {
        Some(end) => &text[..end],
        None => text,
    };
    let chars: Vec<char> = text.chars().collect();
    let mut tokens = Vec::new();
    let mut at = 0;
    while at < chars.len() {
        let char = chars[at];
        let next = chars.get(at + 1).copied();
        match (char, next) {
            ('/', Some('/')) => at = end_of_line(&chars, at),
            ('/', Some('*')) => at = end_of_block_comment(&chars, at),
            ('"', _) => at = end_of_string(&chars, at),
            ('r', Some('"' | '#')) if is_raw_string(&chars, at) => at = end_of_raw_string(&chars, at),
            ('\'', _) => at = end_of_char(&chars, at),
            (':', Some(':')) => {
                tokens.push(Token::PathSeparator);
                at += 2;
            }
            _ if is_word(char) => {
                let end = (at..chars.len()).find(|&at| !is_word(chars[at])).unwrap_or(chars.len());
                tokens.push(Token::Word(chars[at..end].iter().collect()));
                at = end;
            }
            _ => {
                if !char.is_whitespace() {
                    tokens.push(Token::Sign(char));
                }
                at += 1;
            }
        }
    }
    tokens
}

fn is_word(char: char) -> bool {
    char.is_alphanumeric() || char == '_'
}

fn end_of_line(chars: &[char], at: usize) -> usize {
    (at..chars.len()).find(|&at| chars[at] == '\n').unwrap_or(chars.len())
}

/// Returns the end of a block comment, which may contain other block comments.
fn end_of_block_comment(chars: &[char], mut at: usize) -> usize {
    let mut depth = 0;
    while at < chars.len() {
        match (chars[at], chars.get(at + 1)) {
            ('/', Some('*')) => (depth, at) = (depth + 1, at + 2),
            ('*', Some('/')) => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

fn end_of_string(chars: &[char], at: usize) -> usize {
    let mut at = at + 1;
    while at < chars.len() && chars[at] != '"' {
        at += if chars[at] == '\\' { 2 } else { 1 };
    }
    at + 1
}

fn is_raw_string(chars: &[char], at: usize) -> bool {
    let quote = (at + 1..chars.len()).find(|&at| chars[at] != '#');
    quote.is_some_and(|quote| chars[quote] == '"') && (at == 0 || !is_word(chars[at - 1]))
}

fn end_of_raw_string(chars: &[char], at: usize) -> usize {
    let hashes = chars[at + 1..].iter().take_while(|char| **char == '#').count();
    let mut at = at + 2 + hashes;
    while at < chars.len() {
        let is_end = chars[at] == '"' && chars[at + 1..].iter().take(hashes).all(|char| *char == '#');
        at += 1;
        if is_end {
            return at + hashes;
        }
    }
    at
}

/// Returns the end of a character literal. For a lifetime, skips only the apostrophe.
fn end_of_char(chars: &[char], at: usize) -> usize {
    match (chars.get(at + 1), chars.get(at + 2)) {
        (Some('\\'), _) => {
            let end = (at + 3..chars.len()).find(|&at| chars[at] == '\'');
            end.map_or(chars.len(), |end| end + 1)
        }
        (Some(_), Some('\'')) => at + 3,
        _ => at + 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        let word = |token| match token {
            Token::Word(word) => Some(word),
            _ => None,
        };
        tokens(text).into_iter().filter_map(word).collect()
    }

    #[test]
    fn comments_literals_and_unit_tests_are_left_out() {
        let text = "a // b\n/* c /* d */ e */ f \"g \\\" h\" r#\"i \" j\"# 'k' '\\n' &'l m\n#[cfg(test)]\nmod tests {\nn";
        assert_eq!(words(text), ["a", "f", "l", "m"]);
        assert_eq!(words("number r1 for"), ["number", "r1", "for"]);
    }

    #[test]
    fn paths_have_separators() {
        let word = |word: &str| Token::Word(word.to_owned());
        assert_eq!(tokens("a::b;"), [word("a"), Token::PathSeparator, word("b"), Token::Sign(';')]);
    }
}
