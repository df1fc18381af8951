//! Words of a question that are no evidence: sharing them with a passage says nothing.

use std::collections::HashSet;
use std::sync::LazyLock;

/// English words that make up a question, with the pieces of contractions (`don't` is `don`, `t`).
const ENGLISH: &str = "\
    a about above after again against all also am an and any anybody anyone anything are as at be \
    because been before being below between both but by can cannot could d did do does doing don down \
    during each either else ever every few for from further get gets getting give given gives go goes \
    got had has have having he her here hers him his how however i if in into is isn it its itself just \
    know let like ll m many may me might mine more most much must my need needs no nor not now of off on \
    once one only or other our ours out over own per please re s same shall she should so some somebody \
    someone something such t tell than that the their theirs them then there these they thing things \
    this those through to too under until up upon us use used uses using very via want wants was we were \
    what whatever when where whether which while who whoever whole whom whose why will with within \
    without would you your yours ve explain describe show mean means happen happens happened";

/// English words that fit questions about almost everything; they count, but little.
const ENGLISH_GENERIC: &str = "\
    able allow allowed answer best big case change company day days different do employee employees \
    exactly fast find first good high how kind large last left long low make made month months name new \
    next number offer often old order part people person place possible quick quickly question reach \
    right short soon start sort stop take takes time times total two type use way ways week weeks work \
    works wrong year years";

/// Chinese words and particles that make up a question. Longer ones come first, because the text is
/// cut at the first one that fits.
const CHINESE: &[&str] = &[
    "能不能",
    "可不可以",
    "是不是",
    "有没有",
    "会不会",
    "要不要",
    "为什么",
    "怎么样",
    "怎么办",
    "什么样",
    "什么时候",
    "多长时间",
    "是什么",
    "请问",
    "请告诉我",
    "告诉我",
    "我想知道",
    "什么",
    "怎么",
    "怎样",
    "如何",
    "为何",
    "哪些",
    "哪里",
    "哪个",
    "哪一",
    "哪儿",
    "哪种",
    "谁",
    "哪",
    "多少",
    "多久",
    "多长",
    "多大",
    "多高",
    "几个",
    "几天",
    "几年",
    "几次",
    "是否",
    "可以",
    "能否",
    "应该",
    "应当",
    "需要",
    "必须",
    "关于",
    "以及",
    "或者",
    "还是",
    "如果",
    "因为",
    "所以",
    "但是",
    "已经",
    "一个",
    "一下",
    "一共",
    "我们",
    "你们",
    "他们",
    "它们",
    "这个",
    "那个",
    "这些",
    "那些",
    "这里",
    "那里",
    "的",
    "了",
    "吗",
    "呢",
    "吧",
    "啊",
    "呀",
    "么",
    "着",
    "是",
    "在",
    "和",
    "与",
    "及",
    "或",
    "我",
    "你",
    "您",
    "他",
    "她",
    "它",
    "这",
    "那",
    "就",
    "都",
    "也",
    "很",
    "还",
    "把",
    "被",
    "给",
    "对",
    "从",
    "到",
    "向",
    "为",
    "会",
    "能",
    "要",
    "有",
    "没",
    "不",
    "几",
    "个",
];

/// Chinese words that fit questions about almost everything.
const CHINESE_GENERIC: &[&str] = &[
    "公司", "员工", "时候", "问题", "情况", "方法", "办法", "东西", "时间", "内容", "要求", "进行",
    "使用",
];

/// Whether a lower-case word is no evidence.
pub fn is_stop_word(word: &str) -> bool {
    static WORDS: LazyLock<HashSet<&str>> = LazyLock::new(|| ENGLISH.split(' ').collect());
    WORDS.contains(word)
}

/// Whether a lower-case word is little evidence.
pub fn is_generic_word(word: &str) -> bool {
    static WORDS: LazyLock<HashSet<&str>> = LazyLock::new(|| ENGLISH_GENERIC.split(' ').collect());
    WORDS.contains(word)
}

/// A stretch of a Chinese question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// Its characters, at least one.
    pub characters: Vec<char>,
    /// Whether it is little evidence.
    pub generic: bool,
}

/// What is left of a run of Chinese characters when it is cut at the words that are no evidence.
pub fn segments(run: &[char]) -> Vec<Segment> {
    let mut segments = Vec::new();
    let mut kept: Vec<char> = Vec::new();
    let mut at = 0;
    while at < run.len() {
        let stop = longest_match(CHINESE, &run[at..]);
        let generic = longest_match(CHINESE_GENERIC, &run[at..]);
        let length = stop.max(generic);
        if length == 0 {
            kept.push(run[at]);
            at += 1;
            continue;
        }
        close(&mut segments, &mut kept);
        if generic == length {
            let characters = run[at..at + length].to_vec();
            segments.push(Segment {
                characters,
                generic: true,
            });
        }
        at += length;
    }
    close(&mut segments, &mut kept);
    segments
}

fn close(segments: &mut Vec<Segment>, kept: &mut Vec<char>) {
    if !kept.is_empty() {
        segments.push(Segment {
            characters: std::mem::take(kept),
            generic: false,
        });
    }
}

/// The length in characters of the longest word with which `run` begins, 0 for none.
fn longest_match(words: &[&str], run: &[char]) -> usize {
    words
        .iter()
        .map(|word| word.chars().count())
        .zip(words)
        .filter(|(length, word)| {
            *length <= run.len() && word.chars().eq(run[..*length].iter().copied())
        })
        .map(|(length, _)| length)
        .max()
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(run: &str) -> Vec<String> {
        let run: Vec<char> = run.chars().collect();
        segments(&run)
            .into_iter()
            .map(|segment| segment.characters.iter().collect())
            .collect()
    }

    #[test]
    fn a_question_made_of_question_words_leaves_nothing() {
        assert!(shown("这是什么").is_empty());
        assert!(shown("的是什么").is_empty());
        for word in ["what", "is", "the", "how", "do", "i"] {
            assert!(is_stop_word(word), "{word}");
        }
    }

    #[test]
    fn content_words_are_kept_between_the_cuts() {
        assert_eq!(shown("年假最多能结转几天"), ["年假最多", "结转"]);
        assert_eq!(shown("公司的报销流程是什么"), ["公司", "报销流程"]);
        assert!(!is_stop_word("refund"));
    }
}
