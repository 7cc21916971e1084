//! The table that a benchmark prints: what, ours, peer, ratio, goal, verdict. One row a line.

#![allow(dead_code, reason = "each benchmark uses a part of it")]

use crate::rounds::Series;

/// What a row's figure must reach.
#[derive(Clone, Copy, Debug)]
pub enum Goal {
    AtLeast(f64),
    AtMost(f64),
    /// Shown for information.
    None,
}

/// How a figure is written.
#[derive(Clone, Copy, Debug)]
pub enum Unit {
    BytesASecond,
    Seconds,
    Micros,
}

/// Rows in the making.
#[derive(Debug)]
pub struct Table {
    rows: Vec<[String; 6]>,
}

impl Table {
    /// An empty table that says what it is about.
    pub fn new(title: &str) -> Table {
        println!("\n{title}");
        Table { rows: vec![["what", "ours", "peer", "ratio", "goal", ""].map(str::to_owned)] }
    }

    /// A row whose figure is the ratio of our speed (or of our time, with `AtMost`) to the peer's.
    pub fn compare(
        &mut self,
        what: &str,
        unit: Unit,
        ours: &Result<Series, String>,
        peer: &Result<Series, String>,
        goal: Goal,
    ) {
        let (ours, peer) = match (ours, peer) {
            (Ok(ours), Ok(peer)) => (ours, peer),
            (Err(reason), Ok(peer)) => {
                return self.only_peer(what, &unit.show(peer.median()), reason);
            }
            (_, Err(reason)) => return self.absent(what, reason),
        };
        let ratio = match (unit, goal) {
            (Unit::Seconds | Unit::Micros, Goal::AtLeast(_) | Goal::None) => ours.speed_ratio(peer),
            _ => ours.ratio(peer),
        };
        let (ours, peer) = (unit.show(ours.median()), unit.show(peer.median()));
        self.push(what, ours, peer, format!("{ratio:.2}"), ratio, goal);
    }

    /// A row whose figure is ours alone, against a bound in the same unit; the peer is shown.
    pub fn bound(
        &mut self,
        what: &str,
        unit: Unit,
        ours: &Result<Series, String>,
        peer: Option<&Result<Series, String>>,
        goal: Goal,
    ) {
        let peer = peer.and_then(|peer| peer.as_ref().ok());
        match ours {
            Err(reason) => {
                let peer = peer.map(|peer| unit.show(peer.median()));
                self.only_peer(what, peer.as_deref().unwrap_or("-"), reason);
            }
            Ok(ours) => {
                let ratio = peer.map(|peer| format!("{:.2}", ours.ratio(peer)));
                let shown = peer.map(|peer| unit.show(peer.median()));
                let figure = ours.median();
                let (shown, ratio) = (shown.unwrap_or_default(), ratio.unwrap_or_default());
                self.push_bound(what, unit, figure, shown, ratio, goal);
            }
        }
    }

    /// A row of one plain figure that is already text.
    pub fn figure(&mut self, what: &str, text: String, figure: f64, goal: Goal) {
        self.push(what, text, String::new(), String::new(), figure, goal);
    }

    /// A row that could not be measured, and why.
    pub fn absent(&mut self, what: &str, reason: &str) {
        self.only_peer(what, "-", reason);
    }

    /// Prints the rows.
    pub fn print(self) {
        let width = |column: usize| {
            self.rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default()
        };
        let widths: [usize; 6] = std::array::from_fn(width);
        for row in &self.rows {
            let cells: Vec<String> = row
                .iter()
                .zip(widths)
                .enumerate()
                .map(|(column, (cell, width))| match column {
                    0 | 5 => format!("{cell:<width$}"),
                    _ => format!("{cell:>width$}"),
                })
                .collect();
            println!("  {}", cells.join("  ").trim_end());
        }
    }

    fn only_peer(&mut self, what: &str, peer: &str, reason: &str) {
        let reason = reason.lines().next().unwrap_or_default();
        println!("  {what}: not measured: {reason}");
        self.rows.push([what, "-", peer, "-", "", "absent"].map(str::to_owned));
    }

    fn push_bound(
        &mut self,
        what: &str,
        unit: Unit,
        figure: f64,
        peer: String,
        ratio: String,
        goal: Goal,
    ) {
        let row = [
            what.to_owned(),
            unit.show(figure),
            peer,
            ratio,
            goal.show(unit),
            goal.verdict(figure),
        ];
        self.rows.push(row);
    }

    fn push(
        &mut self,
        what: &str,
        ours: String,
        peer: String,
        ratio: String,
        figure: f64,
        goal: Goal,
    ) {
        let wanted = match goal {
            Goal::AtLeast(bound) => format!(">= {bound}"),
            Goal::AtMost(bound) => format!("<= {bound}"),
            Goal::None => String::new(),
        };
        self.rows.push([what.to_owned(), ours, peer, ratio, wanted, goal.verdict(figure)]);
    }
}

impl Goal {
    fn show(self, unit: Unit) -> String {
        match self {
            Goal::AtLeast(bound) => format!(">= {}", unit.show(bound)),
            Goal::AtMost(bound) => format!("<= {}", unit.show(bound)),
            Goal::None => String::new(),
        }
    }

    fn verdict(self, figure: f64) -> String {
        let reached = match self {
            Goal::AtLeast(bound) => figure >= bound,
            Goal::AtMost(bound) => figure <= bound,
            Goal::None => return String::new(),
        };
        if reached { "ok" } else { "MISSED" }.to_owned()
    }
}

impl Unit {
    fn show(self, figure: f64) -> String {
        match self {
            Unit::BytesASecond => format!("{:.2} GB/s", figure / 1e9),
            Unit::Seconds => format!("{figure:.3} s"),
            Unit::Micros => format!("{:.2} us", figure * 1e6),
        }
    }
}
