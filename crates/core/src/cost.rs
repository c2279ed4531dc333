//! What a sandbox costs: one price table, with the date from which each price holds, and the arithmetic
//! over the time that it ran. Providers rarely report a cost, so ours is an estimate and says so.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::sandbox::Resources;
use crate::time::seconds_between;

/// One provider's prices from one date on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Price {
    pub provider: String,
    pub effective_from: Timestamp,
    /// US dollars for one sandbox, whatever its size, per hour.
    #[serde(default)]
    pub sandbox_hour: f64,
    /// US dollars per physical core and second.
    #[serde(default)]
    pub cpu_core_second: f64,
    #[serde(default)]
    pub memory_gib_second: f64,
    /// US dollars per second, by GPU type.
    #[serde(default)]
    pub gpu_second: BTreeMap<String, f64>,
    /// What a sandbox is billed for when it asked for nothing in particular.
    #[serde(default)]
    pub default_cpu_cores: f64,
    #[serde(default)]
    pub default_memory_mb: i64,
}

impl Price {
    fn per_second(&self, resources: &Resources) -> f64 {
        let cores = resources.cpu_cores.unwrap_or(self.default_cpu_cores);
        let gib = resources.memory_mb.unwrap_or(self.default_memory_mb) as f64 / 1024.0;
        let gpu = resources.gpu_type.as_deref().map_or(0.0, |wanted| {
            let found = self.gpu_second.iter().find(|(name, _)| name.eq_ignore_ascii_case(wanted));
            found.map_or(0.0, |(_, price)| *price)
        });
        self.sandbox_hour / 3600.0 + cores * self.cpu_core_second + gib * self.memory_gib_second + gpu
    }
}

/// All prices, sorted by the date from which they hold.
#[derive(Debug, Clone, PartialEq)]
pub struct Prices(Vec<Price>);

impl Prices {
    pub fn new(mut prices: Vec<Price>) -> Self {
        prices.sort_by(|a, b| (&a.provider, a.effective_from).cmp(&(&b.provider, b.effective_from)));
        Self(prices)
    }

    /// Modal's public rates. Local providers cost nothing unless the configuration says otherwise.
    pub fn built_in() -> Vec<Price> {
        let gpu = [
            ("T4", 0.000164),
            ("L4", 0.000222),
            ("A10", 0.000306),
            ("L40S", 0.000542),
            ("A100-40GB", 0.000583),
            ("A100-80GB", 0.000694),
            ("H100", 0.001097),
            ("H200", 0.001261),
            ("B200", 0.001736),
        ];
        vec![Price {
            provider: "modal".to_owned(),
            effective_from: Timestamp::UNIX_EPOCH,
            sandbox_hour: 0.0,
            cpu_core_second: 0.000_039_42,
            memory_gib_second: 0.000_006_72,
            gpu_second: gpu.map(|(name, price)| (name.to_owned(), price)).into_iter().collect(),
            default_cpu_cores: 0.125,
            default_memory_mb: 128,
        }]
    }

    fn of<'a>(&'a self, provider: &'a str) -> impl DoubleEndedIterator<Item = &'a Price> {
        // `process:1a2b3c4d` is the `process` provider of one home.
        let kind = provider.split_once(':').map_or(provider, |(kind, _)| kind);
        self.0.iter().filter(move |p| p.provider == kind)
    }

    /// US dollars per hour at one moment.
    pub fn rate_per_hour(&self, provider: &str, resources: &Resources, at: Timestamp) -> f64 {
        let price = self.of(provider).rev().find(|p| p.effective_from <= at);
        price.map_or(0.0, |p| p.per_second(resources) * 3600.0)
    }

    /// US dollars for running from `from` to `to`, each part at the price that held then.
    pub fn cost(&self, provider: &str, resources: &Resources, from: Timestamp, to: Timestamp) -> f64 {
        let prices: Vec<&Price> = self.of(provider).collect();
        let mut total = 0.0;
        for (i, price) in prices.iter().enumerate() {
            let until = prices.get(i + 1).map_or(to, |next| next.effective_from.min(to));
            let since = price.effective_from.max(from);
            if until > since {
                total += seconds_between(since, until) * price.per_second(resources);
            }
        }
        total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn flat(from: &str, sandbox_hour: f64) -> Price {
        Price {
            provider: "process".into(),
            effective_from: at(from),
            sandbox_hour,
            cpu_core_second: 0.0,
            memory_gib_second: 0.0,
            gpu_second: BTreeMap::new(),
            default_cpu_cores: 0.0,
            default_memory_mb: 0,
        }
    }

    #[test]
    fn a_price_change_in_the_middle_counts_each_side_at_its_own_price() {
        let prices = Prices::new(vec![flat("2026-01-02T00:00:00Z", 2.0), flat("2026-01-01T00:00:00Z", 1.0)]);
        let cost = |from, to| prices.cost("process", &Resources::default(), at(from), at(to));
        assert_eq!(cost("2026-01-01T22:00:00Z", "2026-01-02T03:00:00Z"), 2.0 + 6.0);
        assert_eq!(
            cost("2025-12-31T22:00:00Z", "2026-01-01T01:00:00Z"),
            1.0,
            "nothing before the first price"
        );
        assert_eq!(cost("2026-01-01T02:00:00Z", "2026-01-01T01:00:00Z"), 0.0, "never negative");
        let rate = |when| prices.rate_per_hour("process", &Resources::default(), at(when));
        assert_eq!(
            (rate("2025-01-01T00:00:00Z"), rate("2026-01-01T00:00:00Z"), rate("2026-03-01T00:00:00Z")),
            (0.0, 1.0, 2.0)
        );
    }

    #[test]
    fn modal_by_the_public_rates_and_unknown_providers_for_nothing() {
        let prices = Prices::new(Prices::built_in());
        let resources =
            Resources { cpu_cores: Some(4.0), memory_mb: Some(8192), gpu_type: Some("h100".into()) };
        let rate = prices.rate_per_hour("modal", &resources, at("2026-01-21T00:00:00Z"));
        let expected = (4.0 * 0.00003942 + 8.0 * 0.00000672 + 0.001097) * 3600.0;
        assert!((rate - expected).abs() < 1e-9, "{rate}");
        assert_eq!(prices.rate_per_hour("process", &resources, at("2026-01-21T00:00:00Z")), 0.0);
    }
}
