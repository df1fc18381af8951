//! Retrieval: one contract for every engine ([`backend`]), the index that is part of raglan
//! ([`embedded`]), filters once more on what an engine found ([`filter_check`]), results of several
//! knowledge bases in one list ([`merge`]) and answers made of sentences that stand in the passages
//! ([`answer`]). [`evaluation`] measures rankings. [`runs`] is what all of them take for a word.

pub mod answer;
pub mod backend;
pub mod embedded;
pub mod evaluation;
mod evidence;
pub mod filter_check;
pub mod merge;
pub mod runs;
mod sentences;
pub mod stem;
mod stop_words;
