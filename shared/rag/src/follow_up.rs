//! Questions that only make sense after the ones before them: "And for part-time employees?"

use std::borrow::Cow;

use crate::evidence::Question;

/// A question whose words weigh no more than this (a word is 1, a Chinese character ½, question words
/// nothing) is taken for one that continues the conversation.
const WEIGHT_OF_A_FOLLOW_UP: f32 = 2.0;

/// What to search for when `question` is asked after the `earlier` ones, oldest first.
///
/// A question of its own is searched for as it is. A follow-up is searched for together with the
/// questions that it continues: the latest ones, up to the first that is none. Words decide and nothing
/// else: a short question about something new is also put together with the one before.
#[must_use]
pub fn in_context<'a>(question: &'a str, earlier: &[&str], max_chars: usize) -> Cow<'a, str> {
    if is_question_of_its_own(question) {
        return question.into();
    }
    let mut query = question.to_owned();
    let mut left = max_chars.saturating_sub(question.chars().count());
    for before in earlier.iter().rev() {
        let needed = before.chars().count() + 1;
        if needed > left {
            break;
        }
        left -= needed;
        query.push('\n');
        query.push_str(before);
        if is_question_of_its_own(before) {
            break;
        }
    }
    query.into()
}

fn is_question_of_its_own(question: &str) -> bool {
    Question::new(question).weight() > WEIGHT_OF_A_FOLLOW_UP
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: &str = "How many days of annual leave does a full-time employee get?";

    #[test]
    fn a_short_question_is_searched_for_with_the_ones_that_it_continues() {
        let earlier = [
            "Who repairs the station in Norway?",
            FIRST,
            "And part-time?",
        ];
        assert_eq!(
            in_context("And in Chengdu?", &earlier, 1_000),
            format!("And in Chengdu?\nAnd part-time?\n{FIRST}")
        );
        let earlier = ["成都员工入职满一年有多少天年假？"];
        assert_eq!(
            in_context("那兼职员工呢？", &earlier, 1_000),
            format!("那兼职员工呢？\n{}", earlier[0])
        );
    }

    #[test]
    fn a_question_of_its_own_is_searched_for_as_it_is() {
        let question = "What is the hotel price ceiling per night in Chengdu?";
        assert_eq!(in_context(question, &[FIRST], 1_000), question);
        assert_eq!(in_context("And in Chengdu?", &[], 1_000), "And in Chengdu?");
    }

    #[test]
    fn the_query_stays_as_short_as_it_must() {
        assert_eq!(
            in_context("And in Chengdu?", &[FIRST], 40),
            "And in Chengdu?"
        );
        let query = in_context("And in Chengdu?", &[FIRST], 76);
        assert_eq!(query.chars().count(), 76);
    }
}
