"""An Airflow DAG that looks at the input pipeline's profile once a week, renews it if it is stale, and publishes it.

By the exit code of `autopipe retune`: after 0, a new configuration, `publish` runs. After 6, the former one was kept,
and 7, nothing was to do, `retune` counts as skipped, and `publish` with it. All else fails, and is tried once more.
"""

from __future__ import annotations

import datetime

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG, chain

PROJECT = "/srv/project"

with DAG(
    "autopipe_retune",
    schedule="17 4 * * 0",
    start_date=datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC),
    catchup=False,
    max_active_runs=1,
) as dag:
    retune = BashOperator(
        task_id="retune",
        bash_command=".venv/bin/autopipe retune tuned/autopipe.json --if-stale --exit-code",
        cwd=PROJECT,
        skip_on_exit_code=[6, 7],
        retries=1,
        execution_timeout=datetime.timedelta(minutes=15),
    )
    publish = BashOperator(
        task_id="publish",
        bash_command="git commit --quiet --message 'The input pipeline was retuned' -- tuned/autopipe.json",
        cwd=PROJECT,
    )
    chain(retune, publish)
