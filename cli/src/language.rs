//! The language in which this process speaks to people: its messages, its errors and its help.

use clap::builder::{Arg, Command, StyledStr};
use raglan_texts::{Language, find, translated};

pub use raglan_texts::process_language as current;

/// [`raglan_texts::text!`] in the language of this process.
macro_rules! text {
    ($($arguments:tt)+) => {
        ::raglan_texts::text!($crate::language::current(), $($arguments)+)
    };
}
pub(crate) use text;

/// The parser's own headings.
const COMMANDS: &str = "Commands";
const ARGUMENTS: &str = "Arguments";
const OPTIONS: &str = "Options";
/// As the parser's own, with a word for `Usage`.
const HELP_TEMPLATE: &str =
    "{before-help}{about-with-newline}\nUsage: {usage}\n\n{all-args}{after-help}";

/// The command line with its help in a language. The parser's errors stay English.
#[must_use]
pub fn translate_help(mut command: Command, language: Language) -> Command {
    if language == Language::English {
        return command;
    }
    // Only now are the options and commands there that the parser adds by itself.
    command.build();
    translate_command(command, language)
}

fn translate_command(command: Command, language: Language) -> Command {
    let told = |text: Option<&StyledStr>| {
        let text = text?.to_string();
        find(language, &text)
    };
    let about = told(command.get_about());
    let long_about = told(command.get_long_about());
    let after_help = told(command.get_after_help());
    let mut command = command
        .help_template(translated(language, HELP_TEMPLATE))
        .subcommand_help_heading(translated(language, COMMANDS));
    if let Some(text) = about {
        command = command.about(text);
    }
    if let Some(text) = long_about {
        command = command.long_about(text);
    }
    if let Some(text) = after_help {
        command = command.after_help(text);
    }
    command
        .mut_args(|argument| translate_argument(argument, language))
        .mut_subcommands(|command| translate_command(command, language))
}

fn translate_argument(argument: Arg, language: Language) -> Arg {
    let told = |text: Option<&StyledStr>| find(language, &text?.to_string());
    let heading = match argument.get_help_heading() {
        Some(heading) => find(language, heading),
        None if argument.is_positional() => find(language, ARGUMENTS),
        None => find(language, OPTIONS),
    };
    let (help, long_help) = (told(argument.get_help()), told(argument.get_long_help()));
    let mut argument = argument;
    if let Some(text) = help {
        argument = argument.help(text);
    }
    if let Some(text) = long_help {
        argument = argument.long_help(text);
    }
    if let Some(text) = heading {
        argument = argument.help_heading(text);
    }
    argument
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use clap::CommandFactory as _;

    use super::*;
    use crate::arguments::Arguments;

    /// Every text of the help, as it stands in the sources.
    fn help_texts(command: &Command, texts: &mut BTreeSet<String>) {
        let of_command = [
            command.get_about(),
            command.get_long_about(),
            command.get_after_help(),
        ];
        let of_arguments = command
            .get_arguments()
            .flat_map(|argument| [argument.get_help(), argument.get_long_help()]);
        let headings = command.get_arguments().filter_map(Arg::get_help_heading);
        texts.extend(headings.map(ToOwned::to_owned));
        texts.extend(
            of_command
                .into_iter()
                .chain(of_arguments)
                .flatten()
                .map(ToString::to_string),
        );
        for subcommand in command.get_subcommands() {
            help_texts(subcommand, texts);
        }
    }

    fn section_of_the_help() -> BTreeMap<String, String> {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../shared/texts/catalogue/zh.toml"
        );
        let catalogue = std::fs::read_to_string(path).unwrap();
        let mut sections: BTreeMap<String, BTreeMap<String, String>> =
            toml::from_str(&catalogue).unwrap();
        sections.remove("help").unwrap()
    }

    #[test]
    fn the_catalogue_has_the_help_and_nothing_else_under_help() {
        let mut said: BTreeSet<String> = [HELP_TEMPLATE, COMMANDS, ARGUMENTS, OPTIONS]
            .map(ToOwned::to_owned)
            .into();
        let mut command = Arguments::command();
        command.build();
        help_texts(&command, &mut said);
        let translated: BTreeSet<String> = section_of_the_help().into_keys().collect();
        let elsewhere = |text: &&String| find(Language::Chinese, text).is_some();
        let missing: Vec<_> = said
            .difference(&translated)
            .filter(|text| !elsewhere(text))
            .collect();
        let unused: Vec<_> = translated.difference(&said).collect();
        assert!(missing.is_empty(), "not translated: {missing:#?}");
        assert!(unused.is_empty(), "in no help: {unused:#?}");
    }

    #[test]
    fn the_help_is_told_in_chinese_and_the_commands_stay_as_they_are() {
        let mut english = Arguments::command();
        english.build();
        let chinese = translate_help(english.clone(), Language::Chinese);
        let mut said = BTreeSet::new();
        help_texts(&chinese, &mut said);
        for text in said {
            assert!(
                text.chars().any(|c| ('\u{4e00}'..='\u{9fff}').contains(&c)),
                "{text}"
            );
        }
        let names = |command: &Command| -> Vec<String> {
            let subcommands = command.get_subcommands();
            let arguments = command
                .get_arguments()
                .map(|argument| argument.get_id().to_string());
            subcommands
                .map(|command| command.get_name().to_owned())
                .chain(arguments)
                .collect()
        };
        assert_eq!(names(&english), names(&chinese));
    }
}
