//! Prints the libraries' warnings on standard error, in the format of this command's messages.
//!
//! This is a custom subscriber, because the few warnings need only one line each, without spans, filters or
//! times.

use std::fmt::{self, Write};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Starts printing warnings and errors.
pub fn print() {
    // A second subscriber is rejected, and the first one stays in use.
    let _ = tracing::subscriber::set_global_default(Warnings);
}

struct Warnings;

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        // Warnings from other libraries do not concern the user.
        *metadata.level() <= Level::WARN && metadata.target().starts_with("homa")
    }

    fn event(&self, event: &Event<'_>) {
        eprintln!("homa: {}", text(event));
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// Formats the message, followed by the other fields.
fn text(event: &Event<'_>) -> String {
    let mut line = Line::default();
    event.record(&mut line);
    line.message + &line.fields
}

#[derive(Default)]
struct Line {
    message: String,
    fields: String,
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a string cannot fail.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, "; {name}: {value:?}"),
        };
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    /// Collects the lines that `Warnings` would print.
    struct CollectedLines(Arc<Mutex<Vec<String>>>);

    impl Subscriber for CollectedLines {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            Warnings.enabled(metadata)
        }
        fn event(&self, event: &Event<'_>) {
            self.0.lock().unwrap().push(text(event));
        }
        fn new_span(&self, attributes: &Attributes<'_>) -> Id {
            Warnings.new_span(attributes)
        }
        fn record(&self, _: &Id, _: &Record<'_>) {}
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}
    }

    #[test]
    fn warnings_of_ours_are_one_line_with_their_fields() {
        let kept = Arc::default();
        tracing::subscriber::with_default(CollectedLines(Arc::clone(&kept)), || {
            tracing::warn!(target: "homa_driver", errno = 5, "the device {} is gone", "eth9");
            tracing::info!(target: "homa_driver", "not worth a line");
            tracing::warn!(target: "quinn", "somebody else's");
        });
        assert_eq!(*kept.lock().unwrap(), ["the device eth9 is gone; errno: 5"]);
    }
}
