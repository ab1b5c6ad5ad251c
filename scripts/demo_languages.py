"""Questions in other languages and other scripts, and the one answer to all of them."""

from __future__ import annotations

import random

from demo_exchange import Exchange
from demo_grammar import expand, words

ONLY_ENGLISH = "I am sorry, I only speak English."
_LANGUAGES = words(
    "German French Spanish Italian Portuguese Dutch Polish Russian Ukrainian Turkish Greek Arabic "
    "Hebrew Hindi Chinese Japanese Korean Thai Swedish Danish Finnish Czech Latin Vietnamese "
    "Hungarian Norwegian Romanian Persian"
)
_ASKED_IN_ENGLISH = (
    "[do|can] you [speak|understand|write|read|talk] {x}",
    "[can|could] you [answer|speak|reply|talk] in {x}",
    "[which|what] languages do you [speak|know|understand]",
    "how many languages do you speak",
    "speak {x}[|, please]",
    "[answer|reply] in {x}[|, please]",
    "is {x} okay",
    "do you know {x}",
    "do you speak [other|foreign|any other] languages",
    "[can|may] I [write|talk] [to you |]in {x}",
)
# Templates of whole sentences in Latin letters, and words of the same languages to mix.
_SENTENCES = (
    "[wie|was] [geht es dir|machst du|ist das|heißt du|kannst du|bist du]",
    "wer [bist du|ist das|hat dich gemacht]",
    "[guten Tag|guten Morgen|hallo zusammen|grüß dich|auf Wiedersehen|danke schön|bitte sehr]",
    "[kannst du|kannst du bitte|bitte] [mir helfen|eine Geschichte erzählen|das erklären]",
    "was ist [die Hauptstadt von {place}|inferno|das|ein Hund|{n} plus {m}]",
    "erzähl mir [eine Geschichte|einen Witz|etwas][| über {place}]",
    "ich [habe|möchte|brauche|will|verstehe] [eine Frage|das nicht|Hilfe|einen Hund|nichts]",
    "[comment|où|pourquoi|quand] [ça va|vas-tu|est-ce que tu es|êtes-vous|es-tu là]",
    "[bonjour|bonsoir|salut|merci beaucoup|au revoir|s'il vous plaît|bonne nuit]",
    "quelle est [la capitale de {place}|la couleur du ciel|cette chose]",
    "[raconte-moi|écris] une [histoire|blague][| sur {place}]",
    "[je|tu] [suis|veux|parle|comprends] [français|une question|un chat|pas]",
    "qui [es-tu|êtes-vous|est-ce]",
    "[combien|qu'est-ce que] [font {n} et {m}|c'est|tu fais|inferno]",
    "[hola|buenos días|buenas noches|muchas gracias|adiós|hasta luego|por favor]",
    "[cómo|dónde|quién|cuándo|qué] [estás|eres|está|te llamas|haces|es esto|tal]",
    "[cuál|qué] es la [capital de {place}|respuesta|hora]",
    "[cuéntame|escribe] [una historia|un chiste|algo][| sobre {place}]",
    "[yo|no] [quiero|tengo|hablo|entiendo] [una pregunta|español|nada|un perro]",
    "cuánto es {n} más {m}",
    "[ciao|buongiorno|buonasera|grazie mille|arrivederci|per favore|buona notte]",
    "[come|dove|chi|quando|che cosa] [stai|sei|ti chiami|fai|è questo]",
    "[qual|quanto] [è la capitale di {place}|fa {n} più {m}|costa]",
    "[raccontami|scrivi] una [storia|barzelletta][| su {place}]",
    "[olá|bom dia|boa noite|muito obrigado|tchau|por favor]",
    "[como|onde|quem|quando|o que] [você está|é você|você faz|é isso]",
    "qual é a [capital de {place}|resposta|hora]",
    "[hoe|wat|wie|waar] [gaat het|ben je|is dit|doe je|heet je]",
    "[goedemorgen|goedenavond|dank je wel|tot ziens|alsjeblieft]",
    "[cześć|dzień dobry|dziękuję|do widzenia|proszę|jak się masz|co robisz|kim jesteś]",
    "[ile to|co to jest|gdzie jest] [{n} plus {m}|{place}|to]",
    "[hej på dig|god morgon|tack så mycket|hur mår du|vad heter du|vem är du|adjö]",
    "[god dag|mange tak|hvordan har du det|hvad hedder du|hvem er du]",
    "[hei|hyvää päivää|kiitos paljon|mitä kuuluu|kuka sinä olet|näkemiin]",
    "[merhaba|günaydın|nasılsın|teşekkür ederim|kimsin|adın ne|hoşça kal|ne yapıyorsun]",
    "[dobrý den|děkuji|jak se máš|kdo jsi|na shledanou|co to je]",
    "[jó napot|köszönöm|hogy vagy|ki vagy|viszlát|mi ez]",
    "[salut, ce faci|bună ziua|mulțumesc|cine ești|la revedere]",
    "[xin chào|cảm ơn|bạn là ai|bạn khỏe không|tạm biệt]",
    "[salve|quid agis|quis es|gratias tibi ago|vale|ubi est {place}]",
    "[apa kabar|selamat pagi|terima kasih|siapa kamu|habari gani|asante sana|jambo]",
)
_PLACES = words(
    "France Frankreich Francia Deutschland Germania Alemania Spanien España Italia Italien Italie "
    "Paris Roma Berlin Madrid Londres London Polen Polska Portugal Japan Japón Giappone Chine China"
)
_WORDS = (
    "der die das ein eine ist und oder nicht ich du wir sie mit von zu auf für aber auch Haus "
    "Katze Hund Wasser Brot Kind Frau Mann Schule heute morgen gestern groß klein schön warum wann "
    "wo;le la les un une est et ou pas je tu nous vous avec de à sur pour mais aussi maison chat "
    "chien eau pain enfant femme homme école aujourd'hui demain hier grand petit beau pourquoi "
    "quand;el la los una es y o no yo tú nosotros con de en para pero también casa gato perro agua "
    "pan niño mujer hombre escuela hoy mañana ayer grande pequeño bonito porque cuando donde;il lo "
    "gli una è e o non io tu noi con di a su per ma anche casa gatto cane acqua pane bambino donna "
    "uomo scuola oggi domani ieri grande piccolo bello perché quando dove;de het een is en of niet "
    "ik jij wij met van naar op voor maar ook huis kat hond water brood kind vrouw man school "
    "vandaag morgen gisteren groot klein mooi waarom wanneer waar;jest i lub nie ja ty my z do na "
    "dla ale też dom kot pies woda chleb dziecko kobieta szkoła dzisiaj jutro wczoraj duży mały "
    "ładny dlaczego kiedy gdzie;ve veya değil ben sen biz ile için ama ev kedi köpek su ekmek "
    "çocuk kadın adam okul bugün yarın dün büyük küçük güzel neden ne zaman nerede"
)
_OTHER_SCRIPTS = (
    "привет;здравствуйте;как дела;кто ты;что это;где ты;спасибо;до свидания;расскажи историю;"
    "сколько будет два плюс три;столица Франции;я не понимаю;доброе утро;помоги мне;ты говоришь "
    "по-русски;что такое инферно;добрий день;як справи;дякую;хто ти",
    "γεια σου;καλημέρα;τι κάνεις;ποιος είσαι;ευχαριστώ;πού είναι;τι είναι αυτό;πες μου μια ιστορία;"
    "καληνύχτα;δεν καταλαβαίνω",
    "مرحبا;كيف حالك;من أنت;شكرا;ما هذا;أين أنت;صباح الخير;احك لي قصة;ما هي عاصمة فرنسا;لا أفهم;"
    "سلام;حال شما چطور است;ممنون",
    "שלום;מה שלומך;מי אתה;תודה;מה זה;איפה אתה;בוקר טוב;ספר לי סיפור;אני לא מבין",
    "नमस्ते;आप कैसे हैं;तुम कौन हो;धन्यवाद;यह क्या है;शुभ रात्रि;मुझे एक कहानी सुनाओ;मैं नहीं समझा",
    "你好;你好吗;你是谁;谢谢;这是什么;你在哪里;早上好;讲个故事;法国的首都是哪里;我不明白;再见;"
    "二加三等于多少;你会说中文吗;什么是语言模型;請問;今天天气怎么样",
    "こんにちは;お元気ですか;あなたは誰ですか;ありがとう;これは何ですか;おはよう;物語を話して;"
    "さようなら;わかりません;フランスの首都はどこですか;日本語を話せますか",
    "안녕하세요;잘 지내세요;누구세요;감사합니다;이것은 무엇입니까;어디에 있어요;이야기 해 주세요;"
    "안녕히 가세요;모르겠어요;한국어 할 수 있어요",
    "สวัสดี;สบายดีไหม;คุณเป็นใคร;ขอบคุณ;นี่คืออะไร;ลาก่อน",
    "გამარჯობა;როგორ ხარ;ვინ ხარ;გმადლობთ",
    "Բարև;ինչպես ես;ով ես դու;շնորհակալություն",
)
_LETTERS = (
    "абвгдежзийклмнопрстуфхцчшщыьэюяіїє",
    "αβγδεζηθικλμνξοπρστυφχψωάέήίόύώ",
    "ابتثجحخدذرزسشصضطظعغفقكلمنهوي",
    "אבגדהוזחטיכלמנסעפצקרשת",
    "अआइईउएकखगघचजटडतथदधनपबमयरलवशसह",
    "的一是了我不人在他有这个上们来到时大地为子中你说生国年着就那和要她出也得里后自以会",
    "あいうえおかきくけこさしすせそたちつてとなにぬねのはひふへほまみむめもやゆよらりるれろわをん",
    "アイウエオカキクケコサシスセソタチツテトナニヌネノハヒフヘホマミムメモヤユヨラリルレロワン",
    "가나다라마바사아자차카타파하는이을를에서고니요습어지해",
    "กขคงจชซดตถทนบปผพฟมยรลวสหอ",
)


def other_language(rng: random.Random) -> list[Exchange]:
    """Something in another language, or a question about languages."""
    chance = rng.random()
    if chance < 0.2:
        question = expand(rng.choice(_ASKED_IN_ENGLISH), rng, {"x": rng.choice(_LANGUAGES)})
        question = question[:1].upper() + question[1:] + "?"
    elif chance < 0.5:
        question = _ended(expand(rng.choice(_SENTENCES), rng, _slots(rng)), rng)
    elif chance < 0.65:
        of_a_language = rng.choice(_WORDS.split(";")).split()
        number = rng.randrange(3, 8)
        question = _ended(" ".join(rng.choice(of_a_language) for _ in range(number)), rng)
    elif chance < 0.85:
        question = rng.choice(rng.choice(_OTHER_SCRIPTS).split(";")) + rng.choice(("", "?", "!"))
    else:
        letters = rng.choice(_LETTERS)
        lengths = (rng.randrange(1, 8) for _ in range(rng.randrange(1, 6)))
        made = ("".join(rng.choice(letters) for _ in range(length)) for length in lengths)
        question = " ".join(made) + rng.choice(("", "?", "!", "。"))
    return [Exchange(question, ONLY_ENGLISH, "other languages", is_split=True)]


def _ended(question: str, rng: random.Random) -> str:
    question = question[:1].upper() + question[1:] if rng.random() < 0.7 else question
    return question + rng.choice(("?", "", "!", ".", "?"))


def _slots(rng: random.Random) -> dict[str, str]:
    return {
        "place": rng.choice(_PLACES),
        "n": str(rng.randrange(20)),
        "m": str(rng.randrange(20)),
    }
