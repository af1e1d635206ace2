"""A MovieLens of four users, in the files' own layout."""

from pathlib import Path

import pytest

_RATINGS = [
    # user, item, rating, time
    (1, 11, 5, 300),
    (1, 12, 3, 100),
    (1, 13, 4, 200),
    (2, 12, 1, 50),
    (2, 11, 2, 60),
    (2, 14, 3, 70),
    (2, 13, 4, 70),
    (3, 11, 5, 10),
]


@pytest.fixture(scope="session")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ml-100k")
    ratings = "".join(f"{user}\t{item}\t{rating}\t{at}\n" for user, item, rating, at in _RATINGS)
    (folder / "ml-100k.inter").write_text(
        "user_id:token\titem_id:token\trating:float\ttimestamp:float\n" + ratings
    )
    (folder / "ml-100k.user").write_text(
        "user_id:token\tage:token\tgender:token\toccupation:token\tzip_code:token\n"
        "1\t17\tM\tartist\t1\n2\t36\tF\twriter\t2\n3\t60\tF\tartist\t3\n4\t20\tM\tartist\t4\n"
    )
    (folder / "ml-100k.item").write_text(
        "item_id:token\tmovie_title:token_seq\trelease_year:token\tclass:token_seq\n"
        + "".join(f'{item}\tThe "{item}"\t1990\tDrama\n' for item in (11, 12, 13, 14))
    )
    return folder
