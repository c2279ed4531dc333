//! The address of a database comes from a file or the environment. Whatever it is, nothing panics, and what is
//! said about it never holds the password.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in a test the panic is the message")]

use parhelia_fuzz::{Verdict, fuzz, says_something};
use parhelia_store::postgres::{check_url, is_url, redacted};

#[test]
fn the_address_of_a_database() {
    let seeds = [
        "postgres://ann:s3cret@db.example:5432/parhelia",
        "postgresql://ann:s3cret@127.0.0.1/parhelia?sslmode=require&connect_timeout=3",
        "postgres://ann:s3cret@/parhelia?host=/var/run/postgresql&application_name=x",
        "postgres://ann:s3cret@a,b:5433/parhelia?sslmode=disable&target_session_attrs=read-write",
    ];
    let words =
        ["?", "&", "sslmode=", "verify-ca", "@", ":", "//", "%", "%ff", "[::1]", "options=-c", "host="];
    fuzz(&seeds, &words, |input| {
        let Ok(url) = std::str::from_utf8(input) else { return Verdict::Refused };
        is_url(url);
        let whole = url.contains("://ann:s3cret@");
        let shown = redacted(url);
        assert!(!whole || !shown.contains("s3cret"), "{shown}");
        match check_url(url) {
            Ok(()) => Verdict::Accepted,
            Err(error) => {
                let told = error.to_string();
                assert!(!whole || !told.contains("s3cret"), "{told}");
                says_something(&told)
            }
        }
    });
}
