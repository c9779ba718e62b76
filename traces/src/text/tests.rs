use super::*;
use std::collections::HashSet;

#[test]
fn documents_are_ascii_with_an_answer_of_one_line() {
    for family in Family::ALL {
        for index in 0..500 {
            let one = document(family, 1, index);
            assert!(one.text().is_ascii(), "{one:?}");
            assert!(!one.answer.is_empty() && !one.answer.as_bytes().contains(&END), "{one:?}");
            assert!(one.prompt.ends_with(": "), "{one:?}");
            // A document has fewer than 512 bytes, less than half the length of a training sequence. So in training a
            // model sees whole documents, with worked examples before them.
            assert!(one.text().len() < 512, "{} bytes: {one:?}", one.text().len());
        }
    }
}

#[test]
fn a_document_is_a_function_of_its_key_alone() {
    for family in Family::ALL {
        assert_eq!(document(family, 1, 7), document(family, 1, 7));
        let texts: HashSet<String> = (0..200).map(|index| document(family, 1, index).text()).collect();
        assert!(texts.len() > 180, "{family}: {} different texts of 200", texts.len());
        assert_ne!(document(family, 1, 7).text(), document(family, 2, 7).text());
    }
}

#[test]
fn a_prompt_has_the_length_asked_for_and_ends_in_the_question() {
    for family in Family::ALL {
        for (index, len) in [(0, 1), (1, 16), (2, 200), (3, 1000), (4, 1999)] {
            let prompt = prompt_of_len(family, 3, index, len);
            assert_eq!(prompt.len(), len);
            let question = document(family, 3, index).prompt.into_bytes();
            let common = len.min(question.len());
            assert_eq!(prompt[len - common..], question[question.len() - common..], "{family}");
        }
        // A longer prompt for the same question has the same examples, and further examples in front of them.
        let (short, long) = (prompt_of_len(family, 3, 9, 700), prompt_of_len(family, 3, 9, 1500));
        assert_eq!(short, long[800..]);
        assert_eq!(prompt_of_len(family, 3, 9, 0), b"");
    }
}

#[test]
fn families_are_known_by_name() {
    for family in Family::ALL {
        assert_eq!(family.name().parse(), Ok(family));
        assert_eq!(serde_json::to_value(family).unwrap(), family.name());
    }
    let e = "artihmetic".parse::<Family>().unwrap_err();
    assert_eq!(e.nearest, Family::Arithmetic);
    assert!(e.to_string().contains("did you mean `arithmetic`?") && e.to_string().contains("retrieval"), "{e}");
}

/// The models that Foretoken ships were trained on these generated texts. With other texts they would answer
/// differently.
#[test]
fn the_text_has_not_changed() {
    insta::assert_debug_snapshot!(Family::ALL.map(|family| document(family, 1, 0).text()));
}
