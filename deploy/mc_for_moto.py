"""Do in moto what `mc` does in MinIO, as far as docker/s3/set-up.sh asks.

`python -m deploy.mc_for_moto URL KEYS …` takes the words of mc after the server's URL, with its root user,
and the file for users' keys: moto draws keys itself. As with mc, attaching a policy twice is an error.
"""

import contextlib
import sys
from pathlib import Path
from urllib.parse import urlsplit

import boto3
from pydantic import BaseModel, TypeAdapter

_ACCOUNT = "123456789012"  # moto's


class AccessKey(BaseModel):
    """Credentials as moto drew them."""

    id: str
    secret: str


_KEYS = TypeAdapter(dict[str, AccessKey])


def read_keys(file: Path) -> dict[str, AccessKey]:
    """Return the credentials by the name of the user."""
    return _KEYS.validate_json(file.read_bytes()) if file.exists() else {}


class Moto:
    """moto's S3 and IAM as its root user sees them."""

    def __init__(self, root_url: str, keys: Path) -> None:
        """Keep users' keys in the file `keys`."""
        url = urlsplit(root_url)
        session = boto3.session.Session(url.username, url.password, region_name="us-east-1")
        endpoint = f"{url.scheme}://{url.hostname}:{url.port}"
        self._s3 = session.client("s3", endpoint_url=endpoint)
        self._iam = session.client("iam", endpoint_url=endpoint)
        self._keys = keys

    def make_bucket(self, bucket: str) -> None:
        self._s3.create_bucket(Bucket=bucket)  # again: no error in us-east-1

    def create_policy(self, name: str, file: str) -> None:
        with contextlib.suppress(self._iam.exceptions.NoSuchEntityException):
            self._iam.delete_policy(PolicyArn=_arn(name))
        self._iam.create_policy(PolicyName=name, PolicyDocument=Path(file).read_text())

    def add_user(self, user: str, secret: str) -> None:
        if len(secret) < 8:
            sys.exit("mc: <ERROR> Unable to add new user. The secret key is invalid.")
        known = read_keys(self._keys)
        if user not in known:
            self._iam.create_user(UserName=user)
            drawn = self._iam.create_access_key(UserName=user)["AccessKey"]
            known[user] = AccessKey(id=drawn["AccessKeyId"], secret=drawn["SecretAccessKey"])
            self._keys.write_bytes(_KEYS.dump_json(known))

    def show_user(self, user: str) -> None:
        sys.stdout.write(f"AccessKey: {user}\nPolicyName: {','.join(self._policies(user))}\n")

    def attach_policy(self, name: str, user: str) -> None:
        if name in self._policies(user):
            sys.exit("mc: <ERROR> Unable to make user/group policy association. It is already in effect.")
        self._iam.attach_user_policy(UserName=user, PolicyArn=_arn(name))

    def _policies(self, user: str) -> list[str]:
        attached = self._iam.list_attached_user_policies(UserName=user)["AttachedPolicies"]
        return [each["PolicyName"] for each in attached]


def _arn(policy: str) -> str:
    return f"arn:aws:iam::{_ACCOUNT}:policy/{policy}"


def main(root_url: str, keys: str, *words: str) -> None:
    """Carry out one command; end with an error for any that set-up.sh does not use."""
    moto = Moto(root_url, Path(keys))
    match words:
        case ["mb", "--ignore-existing", place] if place.startswith("store/"):
            moto.make_bucket(place.removeprefix("store/"))
        case ["admin", "policy", "create", "store", name, file]:
            moto.create_policy(name, file)
        case ["admin", "user", "add", "store", user, secret]:
            moto.add_user(user, secret)
        case ["admin", "user", "info", "store", user]:
            moto.show_user(user)
        case ["admin", "policy", "attach", "store", name, "--user", user]:
            moto.attach_policy(name, user)
        case _:
            sys.exit(f"not known here: mc {' '.join(words)}")


if __name__ == "__main__":
    main(*sys.argv[1:])
