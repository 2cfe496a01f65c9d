from types import SimpleNamespace

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from playground.errors import UserError
from playground.pretrained.loading.download import files_to_download
from playground.pretrained.loading.model_files import has_chat_template
from playground.pretrained.tokens import tokenize

VOCABULARY = {"user": 0, ":": 1, "hi": 2, "model": 3, "<unk>": 4}


def pipe_with(template):
    tokenizer = Tokenizer(models.WordLevel(VOCABULARY, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, chat_template=template)
    return SimpleNamespace(tokenizer=fast, model=SimpleNamespace(config=SimpleNamespace()))


def test_a_text_is_the_message_of_the_user_in_the_template():
    template = "{{messages[0].role}} : {{messages[0].content}} {% if add_generation_prompt %}model"
    pipe = pipe_with(template + "{% endif %}")
    assert tokenize(pipe, "hi", as_chat=True) == [0, 1, 2, 3]
    assert tokenize(pipe, "hi") == [2]


@pytest.mark.parametrize("template", ["{{raise_exception('system first')}}", "{% if %}", "{{1/0}}"])
def test_a_template_that_fails_is_reported(template):
    with pytest.raises(UserError, match="turn off As chat"):
        tokenize(pipe_with(template), "hi", as_chat=True)


def test_a_model_without_a_template_is_reported():
    with pytest.raises(UserError, match="this model has no chat template; turn off As chat"):
        tokenize(pipe_with(None), "hi", as_chat=True)


def test_a_template_is_beside_the_tokenizer_or_in_its_settings(tmp_path):
    settings = tmp_path / "tokenizer_config.json"
    for text, expected in (
        ('{"chat_template": "{{messages}}"}', True),
        ("{}", False),
        ("[]", False),
        ("{", False),
    ):
        settings.write_text(text)
        assert has_chat_template(tmp_path) is expected
    settings.unlink()
    assert not has_chat_template(tmp_path)
    (tmp_path / "chat_template.jinja").write_text("{{messages}}")
    assert has_chat_template(tmp_path)


def test_a_template_in_a_file_of_its_own_is_downloaded():
    names = ["config.json", "model.safetensors", "chat_template.jinja", "README.md"]
    siblings = [{"rfilename": name, "size": 1} for name in names]
    small, weights = files_to_download({"siblings": siblings}, "m")
    assert [*small, *weights] == ["config.json", "chat_template.jinja", "model.safetensors"]
