"""An application of Ray Serve: `albertine.serving.ray_serve` answers, Ray distributes.

Format of config.yaml: https://docs.ray.io/en/latest/serve/production-guide/config.html
"""

from __future__ import annotations

from pathlib import Path
from string import Template

from albertine import __version__
from albertine.export.applications import CopiedModel, in_shell

NEEDS = ("ray", "fastapi")  # the second is of ray[serve], and not of ray
EXTRA = "ray-serve"
HEADS = ("task",)  # a server has routes for all outputs of a model
MODEL = "model"
APP = '''"""$name on Ray Serve; written by albertine $version, started as README.md says."""

from pathlib import Path

from albertine.serving.ray_serve import ReplicaSettings, deployment

MODEL = Path(__file__).resolve().parent / "$model"


def app(settings: ReplicaSettings):
    """The application, with `args` of config.yaml."""
    return deployment(MODEL, "$name", settings).bind()
'''
CONFIG = """\
# How Ray Serve runs $name; see README.md.
# Keys: https://docs.ray.io/en/latest/serve/production-guide/config.html
http_options:
  host: 127.0.0.1 # 0.0.0.0 to be reached from other machines; then require a token, see below
  port: 8000
  request_timeout_s: 60
applications:
  - name: "$name"
    route_prefix: /
    import_path: app:app
    # As the options of `albertine serve`, with _ for -:
    args:
      precision: auto
      # device: cuda # with num_gpus below
      # token_file: /etc/albertine/token # on each machine; clients send it as `Authorization: Bearer`
      # allowed_hosts: [encoder.example.org] # names by which clients call, where no token is required
      # auto_truncate: true
      # deadline_seconds: 30
    deployments:
      - name: albertine
        num_replicas: 2
        # Instead of num_replicas:
        # autoscaling_config:
        #   min_replicas: 1
        #   max_replicas: 8
        #   target_ongoing_requests: 32
        ray_actor_options:
          num_cpus: 1 # threads of a replica
          # num_gpus: 1
        # A replica packs the requests that it has at once into steps; what waits beyond these is refused
        # by Ray Serve with 503.
        max_ongoing_requests: 512
        max_queued_requests: 512
        # A replica is replaced where /health/ready of `albertine serve` would have 503, or where its process
        # has ended.
        health_check_period_s: 10
        health_check_timeout_s: 30
        graceful_shutdown_timeout_s: 40
"""
README = """\
# $name on Ray Serve

Written by albertine $version from $source ($digest). `app.py` only calls the package: routes, limits and
errors are those of `albertine serve`.

```sh
pip install 'albertine[ray-serve,$extra]'
cd FOLDER-OF-THIS-FILE
serve run config.yaml --working-dir .
curl http://127.0.0.1:8000/health
curl http://127.0.0.1:8000$path -d $body
```

- `serve run app:app precision=float32` starts one replica without `config.yaml`.
- On a cluster that runs already: `serve deploy config.yaml`, with this folder at the same place of every
  node and in `PYTHONPATH` of Ray, or as a `.zip` at an address in `runtime_env: {working_dir: …}` of the
  application.
- Replicas, processors, token, host and port are set in `config.yaml`. Without a token anyone who reaches the
  port can use the model.
- The answer to a request whose replica is killed is 500 by Ray Serve, or the connection ends; send it again,
  as the clients of OpenAI and others do. The replica is replaced.
- `/metrics` is that of the replica which happens to answer; Ray has metrics of all
  (`ray_serve_…`, https://docs.ray.io/en/latest/serve/monitoring.html). Models are not loaded by requests.
"""


def model_place(name: str) -> str:
    """The folder of the model's copy."""
    return MODEL


def write(model: CopiedModel, folder: Path) -> list[str]:
    """Write app.py, config.yaml and README.md.

    Raises:
        ModelError: the model has no task that the server offers.
    """
    path, body = model.example
    words = {
        "name": model.name,
        "model": MODEL,
        "version": __version__,
        "source": model.source,
        "digest": model.digest[:12],
        "extra": model.extra,
        "path": path,
        "body": in_shell(body),
    }
    for file, text in (("app.py", APP), ("config.yaml", CONFIG), ("README.md", README)):
        (folder / file).write_text(Template(text).substitute(words), encoding="utf-8")
    return ["start it in its folder: serve run config.yaml --working-dir ."]
