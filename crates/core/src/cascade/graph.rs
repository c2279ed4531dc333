//! Which phases come before which: what `needs` says, cycles in it, and who is over for certain when a phase begins.

use std::collections::HashMap;

use super::mistake::{Findings, Way, brief, did_you_mean};
use super::{Cascade, Task, Work};

/// For each phase those that are over when it begins; a row of bits each.
pub(super) struct Order<'a> {
    places: HashMap<&'a str, usize>,
    /// The tasks of each level, by the place of its phase and their ids.
    tasks: HashMap<(usize, &'a str), &'a Task>,
    before: Vec<u64>,
    words: usize,
    /// Nothing certain can be said of what waits for itself.
    has_cycle: bool,
}

impl<'a> Order<'a> {
    pub(super) fn find(cascade: &'a Cascade, way: &Way<'_>, findings: &mut Findings) -> Self {
        let phases = &cascade.phases;
        let mut places: HashMap<&str, usize> = HashMap::with_capacity(phases.len());
        for (n, phase) in phases.iter().enumerate() {
            places.entry(&phase.name).or_insert(n);
        }
        let needs = needs(cascade, &places, way, findings);
        let (order, has_cycle) = sorted(cascade, &needs, way, findings);

        let words = phases.len().div_ceil(64);
        let mut before = vec![0_u64; words * phases.len()];
        for place in order {
            let mut row = vec![0_u64; words];
            for need in needs.get(place).into_iter().flatten() {
                let from = before.get(need * words..(need + 1) * words).unwrap_or_default();
                row.iter_mut().zip(from).for_each(|(to, from)| *to |= from);
                if let Some(word) = row.get_mut(need / 64) {
                    *word |= 1 << (need % 64);
                }
            }
            if let Some(own) = before.get_mut(place * words..(place + 1) * words) {
                own.copy_from_slice(&row);
            }
        }
        let mut tasks = HashMap::new();
        for (n, phase) in phases.iter().enumerate() {
            if let Work::Tasks(level) = &phase.work {
                tasks.extend(level.iter().map(|task| ((n, task.id.as_str()), task)));
            }
        }
        Self { places, tasks, before, words, has_cycle }
    }

    pub(super) fn task(&self, place: usize, id: &str) -> Option<&'a Task> {
        self.tasks.get(&(place, id)).copied()
    }

    pub(super) fn place(&self, name: &str) -> Option<usize> {
        self.places.get(name).copied()
    }

    /// Whether `first` is over for certain when `then` begins.
    pub(super) fn is_before(&self, first: usize, then: usize) -> bool {
        self.has_cycle
            || self
                .before
                .get(then * self.words + first / 64)
                .is_some_and(|word| word >> (first % 64) & 1 == 1)
    }
}

/// By their places; what is unknown is said and left out.
fn needs(
    cascade: &Cascade,
    places: &HashMap<&str, usize>,
    way: &Way<'_>,
    findings: &mut Findings,
) -> Vec<Vec<usize>> {
    let way = way.key("phases");
    let of = |n: usize, findings: &mut Findings| {
        let phase = cascade.phases.get(n)?;
        let Some(named) = &phase.needs else { return (n > 0).then(|| vec![n - 1]) };
        let phase_way = way.index(n);
        let needs_way = phase_way.key("needs");
        let mut found = Vec::with_capacity(named.len());
        for (k, name) in named.iter().enumerate() {
            let here = needs_way.index(k);
            match places.get(name.as_str()) {
                Some(place) if *place == n => findings.say(&here, format!("'{}' needs itself", brief(name))),
                Some(place) => found.push(*place),
                None if findings.is_full() => findings.say(&here, String::new()),
                None => {
                    let known = cascade.phases.iter().map(|phase| phase.name.as_str());
                    let message = format!("there is no phase '{}'", brief(name));
                    findings.advise(&here, message, did_you_mean(name, known));
                }
            }
        }
        Some(found)
    };
    (0..cascade.phases.len()).map(|n| of(n, findings).unwrap_or_default()).collect()
}

/// The phases in an order in which each comes after what it needs; every cycle is named and cut.
fn sorted(
    cascade: &Cascade,
    needs: &[Vec<usize>],
    way: &Way<'_>,
    findings: &mut Findings,
) -> (Vec<usize>, bool) {
    let mut open: Vec<usize> = needs.iter().map(Vec::len).collect();
    let mut needed_by: Vec<Vec<usize>> = vec![Vec::new(); needs.len()];
    for (n, needs) in needs.iter().enumerate() {
        for need in needs {
            needed_by[*need].push(n);
        }
    }
    let mut done = vec![false; needs.len()];
    let mut order = Vec::with_capacity(needs.len());
    let mut ready: Vec<usize> = (0..needs.len()).filter(|n| open[*n] == 0).collect();
    let mut has_cycle = false;
    let mut unseen = 0;
    loop {
        while let Some(n) = ready.pop() {
            if std::mem::replace(&mut done[n], true) {
                continue;
            }
            order.push(n);
            for next in &needed_by[n] {
                open[*next] = open[*next].saturating_sub(1);
                if open[*next] == 0 {
                    ready.push(*next);
                }
            }
        }
        while done.get(unseen) == Some(&true) {
            unseen += 1;
        }
        if unseen >= done.len() {
            return (order, has_cycle);
        }
        has_cycle = true;
        let cycle = cycle_from(unseen, needs, &done);
        tell(&cycle, cascade, way, findings);
        ready.extend(cycle);
    }
}

/// Follows what is needed until something comes again. Everything left over waits for something left over.
fn cycle_from(start: usize, needs: &[Vec<usize>], done: &[bool]) -> Vec<usize> {
    let mut way = Vec::new();
    let mut at_step: HashMap<usize, usize> = HashMap::new();
    let mut here = start;
    loop {
        if let Some(step) = at_step.get(&here) {
            return way.split_off(*step);
        }
        at_step.insert(here, way.len());
        way.push(here);
        match needs[here].iter().find(|need| !done[**need]) {
            Some(next) => here = *next,
            None => return way,
        }
    }
}

fn tell(cycle: &[usize], cascade: &Cascade, way: &Way<'_>, findings: &mut Findings) {
    // Told where somebody wrote it: the first in the file of those with a `needs`.
    let written = |n: &&usize| cascade.phases.get(**n).is_some_and(|phase| phase.needs.is_some());
    let Some(first) = cycle.iter().filter(written).min().or_else(|| cycle.first()) else { return };
    let from = cycle.iter().position(|n| n == first).unwrap_or(0);
    let name = |n: usize| cascade.phases.get(n).map(|phase| brief(&phase.name)).unwrap_or_default();
    let mut names: Vec<String> =
        cycle.iter().cycle().skip(from).take(cycle.len().min(10)).map(|n| name(*n)).collect();
    if cycle.len() > 10 {
        names.push("…".to_owned());
    }
    names.push(name(*first));
    let (phases, at) = (way.key("phases"), *first);
    let phase = phases.index(at);
    let message = format!("these wait for each other: {}", names.join(" → "));
    findings.advise(
        &phase.key("needs"),
        message,
        Some("a phase without 'needs' needs the one above it; 'needs: []' needs none".to_owned()),
    );
}
