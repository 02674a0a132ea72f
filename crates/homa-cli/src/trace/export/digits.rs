//! Formats numbers and names for lines. There are tens of millions of lines, and standard formatting used to
//! take most of the time.

use std::iter;

/// Appends an unsigned number.
pub fn push_number(line: &mut String, mut number: u64) {
    let mut digits = [0_u8; 20];
    let mut from = digits.len();
    while number > 0 || from == digits.len() {
        from -= 1;
        digits[from] = b'0' + (number % 10) as u8;
        number /= 10;
    }
    line.push_str(str::from_utf8(&digits[from..]).unwrap_or_default());
}

/// Appends nanoseconds as microseconds with three decimals, in at least `width` characters.
pub fn push_us(line: &mut String, ns: u64, width: usize) {
    let (us, places) = (ns / 1_000, ns % 1_000);
    let digits = us.checked_ilog10().map_or(1, |tens| tens as usize + 1);
    line.extend(iter::repeat_n(' ', width.saturating_sub(digits + 4)));
    push_number(line, us);
    line.push('.');
    for place in [places / 100, places / 10 % 10, places % 10] {
        line.push(char::from(b'0' + place as u8));
    }
}

/// Appends a text, padded with spaces to `width` characters.
pub fn pad(line: &mut String, text: &str, width: usize) {
    line.push_str(text);
    line.extend(iter::repeat_n(' ', width.saturating_sub(text.chars().count())));
}

/// Appends a text, escaped as in a JSON string, without quotes.
pub fn push_escaped(line: &mut String, text: &str) {
    for letter in text.chars() {
        match letter {
            '"' | '\\' => line.extend(['\\', letter]),
            // Names contain no control characters, but a corrupted name must not make the document invalid.
            letter if letter < ' ' => line.push('\u{fffd}'),
            letter => line.push(letter),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_times_are_as_the_standard_formatting_has_them() {
        for ns in [0, 9, 10, 999, 1_000, 123_456, 9_999_999, 10_000_000_000, u64::MAX] {
            let mut line = String::new();
            push_number(&mut line, ns);
            assert_eq!(line, ns.to_string());
            for width in [0, 9, 30] {
                line.clear();
                push_us(&mut line, ns, width);
                assert_eq!(line, format!("{:>width$}", format!("{}.{:03}", ns / 1_000, ns % 1_000)));
            }
        }
    }

    #[test]
    fn names_are_padded_by_characters() {
        let mut line = String::new();
        pad(&mut line, "hä", 4);
        pad(&mut line, "long", 2);
        assert_eq!(line, "hä  long");
    }

    #[test]
    fn what_json_would_not_take_is_escaped() {
        let mut line = String::from("\"");
        push_escaped(&mut line, "a \"b\" \\ ä\n");
        line.push('"');
        assert_eq!(serde_json::from_str::<String>(&line).expect("JSON"), "a \"b\" \\ ä\u{fffd}");
    }
}
