"""SQL on messages without register(): the format is found by its name. Run as a script."""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession


def main() -> None:
    told = json.loads(sys.argv[1])
    spark = (
        SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    )
    options = ", ".join(f"{name} '{value}'" for name, value in told["options"].items())
    spark.sql(f"CREATE TEMPORARY VIEW waiting USING nsq OPTIONS (mode 'peek', {options})")
    seen = spark.sql("SELECT count(*) AS n FROM waiting").first()
    assert seen is not None
    options = {name: told["options"][name] for name in ("address",)}
    frame = spark.createDataFrame([("by name",)], ["value"])
    frame.write.format("nsq").options(topic="copied", **options).mode("append").save()
    sys.stdout.write(f"counted {seen.n}\n")
    spark.stop()


if __name__ == "__main__":
    main()
