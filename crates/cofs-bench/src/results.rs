//! Results that were written (`cofs bench --output json`), read again: documents one after the other, each a
//! report, the outcome of a profile, a list of them, or what holds them as `reports`.

use serde::{Deserialize, de::Error};
use serde_json::{Deserializer, Value};

use crate::{Outcome, Report};

/// All reports in the text.
///
/// Errors: something that is no result of a bench, and the how-manyth document it is in.
pub fn results(text: &str) -> Result<Vec<Report>, serde_json::Error> {
    let mut reports = Vec::new();
    for (at, document) in Deserializer::from_str(text).into_iter::<Value>().enumerate() {
        let place = |error| serde_json::Error::custom(format!("result {}: {error}", at + 1));
        gather(document.map_err(place)?, &mut reports).map_err(place)?;
    }
    match reports.is_empty() {
        true => Err(serde_json::Error::custom("there are no results in it")),
        false => Ok(reports),
    }
}

fn gather(document: Value, reports: &mut Vec<Report>) -> Result<(), serde_json::Error> {
    match document {
        Value::Array(all) => all.into_iter().try_for_each(|one| gather(one, reports)),
        Value::Object(fields) if fields.contains_key("scores") => {
            let outcome = Outcome::deserialize(Value::Object(fields))?;
            reports.push(outcome.report().map_err(serde_json::Error::custom)?);
            Ok(())
        }
        Value::Object(mut fields) if fields.contains_key("reports") => {
            gather(fields.remove("reports").unwrap_or_default(), reports)
        }
        one => Report::deserialize(one).map(|report| reports.push(report)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_is_read() {
        let one = r#"{"suite":"io","options":{},"processes":1,"repeats":1,"conditions":{"version":"","begun_unix":0,
            "warm_ups":0,"seconds":null,"sync":false,"drop_caches":false,"nodes":[]},
            "environments":[],"rows":[],"original":[]}"#;
        for (text, count) in [
            (one.to_owned(), 1),
            (format!("{one}\n{one}"), 2),
            (format!("{{\"reports\":[{one},{one}]}}[{one}]"), 3),
        ] {
            assert_eq!(results(&text).unwrap().len(), count);
        }
        assert!(results(&format!("{one} 7")).unwrap_err().to_string().contains("result 2"));
        for text in ["", "{", "[]", "{\"suite\":1}"] {
            assert!(results(text).is_err());
        }
    }
}
