//! `config`: the effective properties as `name=value` lines, in groups by who says so, each group
//! by name and under a comment line (contract 4.10).

use std::fmt::Write;

use crate::engine::config::{Config, Origin};

/// The groups in their order, with what is said of each.
const GROUPS: [(Origin, &str); 5] = [
    (Origin::Here, "set here"),
    (
        Origin::ClusterMetadata,
        "set for this topic in __cluster_metadata-0 (retention and segment.ms only shown)",
    ),
    (
        Origin::ClusterDefault,
        "set for the brokers in __cluster_metadata-0 (retention and segment.ms only shown)",
    ),
    (
        Origin::OffsetfsDefault,
        "offsetfs: nothing is deleted or rolled by age unless it is set here",
    ),
    (Origin::Default, "Kafka's defaults"),
];

/// The file.
pub fn text(config: &Config) -> Vec<u8> {
    let mut text = String::new();
    let mut line = |written: std::fmt::Arguments<'_>| {
        writeln!(text, "{written}").expect("a String takes all text");
    };
    for (origin, said) in GROUPS {
        let mut group = config.entries().iter().filter(|property| property.origin == origin);
        if let Some(first) = group.next() {
            line(format_args!("# {said}"));
            for property in std::iter::once(first).chain(group) {
                line(format_args!("{}={}", property.name, property.value));
            }
        }
    }
    if !config.left_out().is_empty() {
        line(format_args!("# set for this topic in __cluster_metadata-0, without effect here:"));
        for (name, value) in config.left_out() {
            line(format_args!("# {}={}", name.escape_debug(), value.escape_debug()));
        }
    }
    text.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::config::effective;
    use crate::engine::fixture;

    fn shown(source: &std::path::Path, partition: &str) -> String {
        String::from_utf8(text(&effective(&fixture::log(source, partition)))).unwrap()
    }

    #[test]
    fn without_a_cluster_the_defaults_are_shown_but_nothing_by_age() {
        let source = fixture::data_dir("clean", &["plain-0"]);
        let text = shown(source.path(), "plain-0");
        let head = "# offsetfs: nothing is deleted or rolled by age unless it is set here\n\
                    retention.bytes=-1\n\
                    retention.ms=-1\n\
                    segment.ms=9223372036854775807\n\
                    # Kafka's defaults\n\
                    cleanup.policy=delete\n";
        assert!(text.starts_with(head), "{text}");
        assert!(text.ends_with("segment.jitter.ms=0\n"), "{text}");
        assert_eq!(text.lines().filter(|line| !line.starts_with('#')).count(), 29);
    }

    #[test]
    fn what_the_cluster_set_is_shown_first_and_what_is_not_known_named() {
        let source = fixture::data_dir("clean", &["plain-0"]);
        fixture::with_metadata("clean", source.path());
        let text = shown(source.path(), "plain-0");
        let head = "# set for this topic in __cluster_metadata-0 \
                    (retention and segment.ms only shown)\n\
                    file.delete.delay.ms=100\n\
                    index.interval.bytes=1024\n\
                    retention.ms=-1\n\
                    segment.index.bytes=2048\n\
                    segment.ms=9223372036854775807\n\
                    # set for the brokers";
        assert!(text.starts_with(head), "{text}");
        assert!(text.ends_with("here:\n# internal.segment.bytes=32768\n"), "{text}");
        assert!(text.contains("unless it is set here\nretention.bytes=-1\n"), "{text}");
    }
}
